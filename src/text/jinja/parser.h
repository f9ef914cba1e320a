// Reads tokens one by one, and expressions of them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ast.h"
#include "lexer.h"

namespace lmtp::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  using Kind = Expression::Kind;

  const Token& current() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[pos_ + 1 < tokens_.size() ? pos_ + 1 : pos_]; }
  bool at_name(std::string_view name) const { return current().is(Token::Kind::kName, name); }
  bool at(std::string_view sign) const { return current().is(Token::Kind::kOperator, sign); }
  bool at(Token::Kind kind) const { return current().kind == kind; }
  Token next();
  bool skip(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect(std::string_view sign);
  std::string expect_name();
  void expect(Token::Kind kind);
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_unexpected() const;

  // A tuple, where there is a comma. `with_condition`: `a if b` is an expression.
  ExpressionPtr tuple(bool with_condition = true, bool in_parentheses = false);
  // What is assigned to.
  ExpressionPtr target();
  ExpressionPtr expression();
  // Filters after each other. Null for `of`: the first one's name may stand here, or there is none.
  ExpressionPtr filters(ExpressionPtr of);
  std::vector<Parameter> parameters();

  // Whether names that a macro may read besides its parameters have been read.
  bool uses_varargs_ = false;
  bool uses_kwargs_ = false;

 private:
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr of);
  ExpressionPtr filtered(ExpressionPtr of);
  ExpressionPtr test(ExpressionPtr of);
  ExpressionPtr subscript(ExpressionPtr of);
  ExpressionPtr subscribed();
  ExpressionPtr call(ExpressionPtr of);
  ExpressionPtr list();
  ExpressionPtr dict();
  CallArguments call_arguments();
  void call_argument(CallArguments& into);
  std::string dotted_name();
  bool at_tuple_end() const;
  ExpressionPtr binary(ExpressionPtr (ExpressionParser::*operand)(),
                       std::initializer_list<std::string_view> signs);

  std::vector<Token> tokens_;
  std::size_t pos_ = 0;
};

}  // namespace lmtp::jinja

#include "parser.h"

#include <algorithm>

namespace lmtp::jinja {
namespace {

template <typename... Parts>
ExpressionPtr make(Expression::Kind kind, std::string name, Parts... parts) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->name = std::move(name);
  (made->parts.push_back(std::move(parts)), ...);
  return made;
}

ExpressionPtr make_constant(Value value) {
  auto made = std::make_unique<Expression>();
  made->value = std::move(value);
  return made;
}

ExpressionPtr make_all(Expression::Kind kind, std::vector<ExpressionPtr> parts) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->parts = std::move(parts);
  return made;
}

ExpressionPtr make_call(Expression::Kind kind, std::string name, ExpressionPtr of,
                        CallArguments arguments) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->name = std::move(name);
  if (of != nullptr) made->parts.push_back(std::move(of));
  made->arguments = std::move(arguments);
  return made;
}

}  // namespace

Token ExpressionParser::next() {
  Token token = tokens_[pos_];
  if (pos_ + 1 < tokens_.size()) ++pos_;
  return token;
}

bool ExpressionParser::skip(std::string_view sign) {
  if (!at(sign)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

void ExpressionParser::expect(std::string_view sign) {
  if (!skip(sign)) fail("expected '" + std::string(sign) + "'");
}

void ExpressionParser::expect(Token::Kind kind) {
  if (!at(kind)) fail_unexpected();
  next();
}

std::string ExpressionParser::expect_name() {
  if (!at(Token::Kind::kName)) fail("expected a name");
  return next().text;
}

void ExpressionParser::fail(const std::string& what) const {
  throw TemplateError("line " + std::to_string(current().line) + ": " + what);
}

void ExpressionParser::fail_unexpected() const {
  if (at(Token::Kind::kEnd)) fail("unexpected end of template");
  fail("unexpected '" + (current().text.empty() ? "tag or text" : current().text) + "'");
}

bool ExpressionParser::at_tuple_end() const {
  return at(Token::Kind::kVariableEnd) || at(Token::Kind::kBlockEnd) || at(")");
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, bool in_parentheses) {
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (!at_tuple_end() && !(is_tuple && at_name("recursive"))) {
    parts.push_back(with_condition ? expression() : logical_or());
    if (!skip(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts[0]);
  if (!is_tuple && !in_parentheses) fail("expected an expression");
  return make_all(Kind::kTuple, std::move(parts));
}

ExpressionPtr ExpressionParser::target() {
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  while (at(Token::Kind::kName) ? !(is_tuple && at_name("in")) : at("(")) {
    if (skip("(")) {
      parts.push_back(target());
      expect(")");
    } else {
      std::string name = expect_name();
      auto made = make(Kind::kName, std::move(name));
      if (skip(".")) made = make(Kind::kAttribute, expect_name(), std::move(made));
      parts.push_back(std::move(made));
    }
    if (!skip(",")) break;
    is_tuple = true;
  }
  if (parts.empty()) fail_unexpected();
  return is_tuple ? make_all(Kind::kTuple, std::move(parts)) : std::move(parts[0]);
}

ExpressionPtr ExpressionParser::expression() {
  ExpressionPtr left = logical_or();
  while (skip_name("if")) {
    ExpressionPtr condition = logical_or();
    if (skip_name("else")) {
      ExpressionPtr otherwise = expression();
      left =
          make(Kind::kCondition, "", std::move(condition), std::move(left), std::move(otherwise));
    } else {
      left = make(Kind::kCondition, "", std::move(condition), std::move(left));
    }
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_or() {
  ExpressionPtr left = logical_and();
  while (skip_name("or")) {
    ExpressionPtr right = logical_and();
    left = make(Kind::kOr, "", std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_and() {
  ExpressionPtr left = logical_not();
  while (skip_name("and")) {
    ExpressionPtr right = logical_not();
    left = make(Kind::kAnd, "", std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr ExpressionParser::logical_not() {
  if (skip_name("not")) return make(Kind::kNot, "", logical_not());
  return comparison();
}

ExpressionPtr ExpressionParser::comparison() {
  constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> operators;
  parts.push_back(sum());
  while (true) {
    if (at(Token::Kind::kOperator) &&
        std::ranges::find(kSigns, current().text) != std::end(kSigns)) {
      operators.push_back(next().text);
    } else if (skip_name("in")) {
      operators.emplace_back("in");
    } else if (at_name("not") && look().is(Token::Kind::kName, "in")) {
      next();
      next();
      operators.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(sum());
  }
  if (operators.empty()) return std::move(parts[0]);
  auto made = std::make_unique<Expression>();
  made->kind = Kind::kCompare;
  made->operators = std::move(operators);
  made->parts = std::move(parts);
  return made;
}

ExpressionPtr ExpressionParser::binary(ExpressionPtr (ExpressionParser::*operand)(),
                                       std::initializer_list<std::string_view> signs) {
  ExpressionPtr left = (this->*operand)();
  while (at(Token::Kind::kOperator) && std::ranges::find(signs, current().text) != signs.end()) {
    std::string sign = next().text;
    ExpressionPtr right = (this->*operand)();
    left = make(Kind::kBinary, std::move(sign), std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr ExpressionParser::sum() {
  return binary(&ExpressionParser::concatenation, {"+", "-"});
}

ExpressionPtr ExpressionParser::concatenation() {
  std::vector<ExpressionPtr> parts;
  do {
    parts.push_back(product());
  } while (skip("~"));
  return parts.size() == 1 ? std::move(parts[0]) : make_all(Kind::kConcat, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  return binary(&ExpressionParser::power, {"*", "/", "//", "%"});
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (skip("**")) {
    ExpressionPtr right = unary();
    left = make(Kind::kBinary, "**", std::move(left), std::move(right));
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filter) {
  ExpressionPtr made;
  if (at("-") || at("+")) {
    std::string sign = next().text;
    made = make(Kind::kUnary, std::move(sign), unary(false));
  } else {
    made = primary();
  }
  made = postfix(std::move(made));
  return with_filter ? filtered(std::move(made)) : std::move(made);
}

ExpressionPtr ExpressionParser::primary() {
  if (at("(")) {
    next();
    ExpressionPtr made = tuple(true, true);
    expect(")");
    return made;
  }
  if (at("[")) return list();
  if (at("{")) return dict();
  if (at(Token::Kind::kNumber)) return make_constant(next().value);
  if (at(Token::Kind::kString)) {
    Text text = *get_text(next().value);
    while (at(Token::Kind::kString)) text += *get_text(next().value);
    return make_constant(make_text(std::move(text)));
  }
  if (!at(Token::Kind::kName)) fail_unexpected();
  std::string name = next().text;
  if (name == "true" || name == "True") return make_constant(true);
  if (name == "false" || name == "False") return make_constant(false);
  if (name == "none" || name == "None") return make_constant(None{});
  uses_varargs_ |= name == "varargs";
  uses_kwargs_ |= name == "kwargs";
  return make(Kind::kName, std::move(name));
}

ExpressionPtr ExpressionParser::list() {
  std::vector<ExpressionPtr> parts;
  expect("[");
  while (!at("]")) {
    parts.push_back(expression());
    if (!skip(",")) break;
  }
  expect("]");
  return make_all(Kind::kList, std::move(parts));
}

ExpressionPtr ExpressionParser::dict() {
  std::vector<ExpressionPtr> parts;
  expect("{");
  while (!at("}")) {
    parts.push_back(expression());
    expect(":");
    parts.push_back(expression());
    if (!skip(",")) break;
  }
  expect("}");
  return make_all(Kind::kDict, std::move(parts));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr of) {
  while (at(".") || at("[") || at("(")) {
    of = at("(") ? call(std::move(of)) : subscript(std::move(of));
  }
  return of;
}

ExpressionPtr ExpressionParser::filtered(ExpressionPtr of) {
  while (at("|") || at_name("is") || at("(")) {
    if (at("|")) {
      of = filters(std::move(of));
    } else {
      of = at("(") ? call(std::move(of)) : test(std::move(of));
    }
  }
  return of;
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_name();
  while (skip(".")) name += "." + expect_name();
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr of) {
  bool is_begun = of == nullptr && at(Token::Kind::kName);
  while (is_begun || skip("|")) {
    is_begun = false;
    std::string name = dotted_name();
    CallArguments arguments;
    if (at("(")) arguments = call_arguments();
    of = make_call(Kind::kFilter, std::move(name), std::move(of), std::move(arguments));
  }
  return of;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr of) {
  next();  // is
  const bool is_negated = skip_name("not");
  std::string name = dotted_name();
  CallArguments arguments;
  using TokenKind = Token::Kind;
  if (at("(")) {
    arguments = call_arguments();
  } else if ((at(TokenKind::kName) && !at_name("else") && !at_name("or") && !at_name("and")) ||
             at(TokenKind::kString) || at(TokenKind::kNumber) || at("[") || at("{")) {
    if (at_name("is")) fail("You cannot chain multiple tests with is");
    arguments.positional.push_back(postfix(primary()));
  }
  of = make_call(Kind::kTest, std::move(name), std::move(of), std::move(arguments));
  return is_negated ? make(Kind::kNot, "", std::move(of)) : std::move(of);
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr of) {
  if (skip(".")) {
    if (at(Token::Kind::kNumber)) {
      return make(Kind::kItem, "", std::move(of), make_constant(next().value));
    }
    return make(Kind::kAttribute, expect_name(), std::move(of));
  }
  expect("[");
  std::vector<ExpressionPtr> parts;
  while (!at("]")) {
    if (!parts.empty()) expect(",");
    parts.push_back(subscribed());
  }
  expect("]");
  ExpressionPtr which =
      parts.size() == 1 ? std::move(parts[0]) : make_all(Kind::kTuple, std::move(parts));
  return make(Kind::kItem, "", std::move(of), std::move(which));
}

ExpressionPtr ExpressionParser::subscribed() {
  const auto at_end = [this] { return at(":") || at("]") || at(","); };
  ExpressionPtr begin = at(":") ? nullptr : expression();
  if (!skip(":")) return begin;
  ExpressionPtr end = at_end() ? nullptr : expression();
  ExpressionPtr step = skip(":") && !at_end() ? expression() : nullptr;
  return make(Kind::kSlice, "", std::move(begin), std::move(end), std::move(step));
}

ExpressionPtr ExpressionParser::call(ExpressionPtr of) {
  return make_call(Kind::kCall, "", std::move(of), call_arguments());
}

CallArguments ExpressionParser::call_arguments() {
  CallArguments arguments;
  expect("(");
  while (!at(")")) {
    call_argument(arguments);
    if (!skip(",")) break;
  }
  expect(")");
  return arguments;
}

void ExpressionParser::call_argument(CallArguments& into) {
  const auto ensure = [this](bool holds) {
    if (!holds) fail("invalid syntax for function call expression");
  };
  ensure(into.dict == nullptr);
  if (skip("*")) {
    ensure(into.list == nullptr);
    into.list = expression();
  } else if (skip("**")) {
    into.dict = expression();
  } else if (at(Token::Kind::kName) && look().is(Token::Kind::kOperator, "=")) {
    std::string name = next().text;
    next();
    into.named.emplace_back(std::move(name), expression());
  } else {
    ensure(into.list == nullptr && into.named.empty());
    into.positional.push_back(expression());
  }
}

std::vector<Parameter> ExpressionParser::parameters() {
  std::vector<Parameter> read;
  expect("(");
  while (!at(")")) {
    if (!read.empty()) expect(",");
    Parameter parameter{.name = expect_name(), .otherwise = nullptr};
    if (skip("=")) {
      parameter.otherwise = expression();
    } else if (!read.empty() && read.back().otherwise != nullptr) {
      fail("non-default argument follows default argument");
    }
    read.push_back(std::move(parameter));
  }
  expect(")");
  return read;
}

}  // namespace lmtp::jinja

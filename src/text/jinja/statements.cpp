// Reads a template's statements.
#include <algorithm>
#include <array>

#include "parser.h"

namespace lmtp::jinja {
namespace {

class TemplateParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() { return body({}); }

 private:
  using TokenKind = Token::Kind;
  using StatementKind = Statement::Kind;

  // Up to the tag of one of these names, at which it ends; to the template's end where there is
  // none.
  Body body(std::initializer_list<std::string_view> ends) {
    Body read;
    while (!at(TokenKind::kEnd)) {
      if (at(TokenKind::kData)) {
        read.push_back({.kind = StatementKind::kData, .data = next().value});
      } else if (at(TokenKind::kVariableBegin)) {
        next();
        Statement print{.kind = StatementKind::kPrint};
        print.expressions.push_back(tuple());
        read.push_back(std::move(print));
        expect(TokenKind::kVariableEnd);
      } else {
        expect(TokenKind::kBlockBegin);
        const bool is_end =
            at(TokenKind::kName) && std::ranges::find(ends, current().text) != ends.end();
        if (is_end) return read;
        read.push_back(statement());
        expect(TokenKind::kBlockEnd);
      }
    }
    if (ends.size() > 0) fail("unexpected end of template");
    return read;
  }

  // Behind the tag's end, up to its closing tag, which is passed but for its end.
  Body body_to(std::string_view end) {
    expect(TokenKind::kBlockEnd);
    Body read = body({end});
    next();
    return read;
  }

  Statement statement() {
    const std::string name = expect_name();
    if (name == "for") return for_statement();
    if (name == "if") return if_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return macro();
    if (name == "call") return call_block();
    if (name == "filter") return filter_block();
    if (name == "with") return with();
    if (name == "print") return print();
    if (name == "break") return {.kind = StatementKind::kBreak};
    if (name == "continue") return {.kind = StatementKind::kContinue};
    if (name == "generation") {
      return {.kind = StatementKind::kScope, .body = body_to("endgeneration")};
    }
    if (name == "block") return block();
    fail("Encountered unknown tag '" + name + "'");
  }

  Statement for_statement() {
    Statement made{.kind = StatementKind::kFor, .target = target()};
    if (!skip_name("in")) fail("expected 'in'");
    made.expression = tuple(false);  // `if` is the loop's
    if (skip_name("if")) made.condition = expression();
    made.is_recursive = skip_name("recursive");
    expect(TokenKind::kBlockEnd);
    made.body = body({"endfor", "else"});
    if (next().text == "endfor") return made;
    made.otherwise = body_to("endfor");
    return made;
  }

  Statement if_statement() {
    Statement made{.kind = StatementKind::kIf, .expression = tuple(false)};
    expect(TokenKind::kBlockEnd);
    made.body = body({"elif", "else", "endif"});
    const std::string end = next().text;
    if (end == "elif") {
      made.otherwise.push_back(if_statement());
    } else if (end == "else") {
      made.otherwise = body_to("endif");
    }
    return made;
  }

  Statement set_statement() {
    Statement made{.kind = StatementKind::kSet, .target = target()};
    if (skip("=")) {
      made.expression = tuple();
      return made;
    }
    made.kind = StatementKind::kSetBlock;
    made.expression = filters(nullptr);
    made.body = body_to("endset");
    return made;
  }

  Statement macro() {
    Statement made{.kind = StatementKind::kMacro, .name = expect_name()};
    made.parameters = parameters();
    const bool varargs = std::exchange(uses_varargs_, false);
    const bool kwargs = std::exchange(uses_kwargs_, false);
    made.body = body_to("endmacro");
    made.takes_varargs = std::exchange(uses_varargs_, varargs);
    made.takes_kwargs = std::exchange(uses_kwargs_, kwargs);
    return made;
  }

  Statement call_block() {
    Statement made{.kind = StatementKind::kCall};
    if (at("(")) made.parameters = parameters();
    made.expression = expression();
    if (made.expression->kind != Expression::Kind::kCall) fail("expected call");
    made.body = body_to("endcall");
    return made;
  }

  Statement filter_block() {
    Statement made{.kind = StatementKind::kFilter, .expression = filters(nullptr)};
    made.body = body_to("endfilter");
    return made;
  }

  // Targets and values in turn.
  Statement with() {
    Statement made{.kind = StatementKind::kWith};
    while (!at(TokenKind::kBlockEnd)) {
      if (!made.expressions.empty()) expect(",");
      made.expressions.push_back(target());
      expect("=");
      made.expressions.push_back(expression());
    }
    made.body = body_to("endwith");
    return made;
  }

  Statement print() {
    Statement made{.kind = StatementKind::kPrint};
    while (!at(TokenKind::kBlockEnd)) {
      if (!made.expressions.empty()) expect(",");
      made.expressions.push_back(expression());
    }
    return made;
  }

  Statement block() {
    Statement made{.kind = StatementKind::kScope, .name = expect_name()};
    made.body = body_to("endblock");
    if (at(TokenKind::kName)) next();
    return made;
  }
};

}  // namespace

Body parse(std::string_view source) { return TemplateParser(tokenize(source)).run(); }

}  // namespace lmtp::jinja

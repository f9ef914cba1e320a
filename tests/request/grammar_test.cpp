// The grammars of {"type": ..., "value": ...}: which values each type takes.
#include "lmtp/request/grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace lmtp {
namespace {

using Kind = Grammar::Kind;
using Given = GrammarValue::Kind;

TEST(Grammar, EachTypeTakesItsValues) {
  const std::vector<std::tuple<std::string, GrammarValue, Grammar>> cases = {
      {"regex", {Given::kText, "a+"}, {Kind::kRegex, "a+"}},
      {"regex", {Given::kText, "{}"}, {Kind::kRegex, "{}"}},
      {"choice", {Given::kList, R"(["a"])"}, {Kind::kChoice, R"(["a"])"}},
      {"json", {}, {Kind::kJson, ""}},
      {"json", {Given::kObject, "{}"}, {Kind::kJson, ""}},
      {"json", {Given::kObject, R"({"a":1})"}, {Kind::kJsonSchema, R"({"a":1})"}},
      {"json", {Given::kText, R"({"a":1})"}, {Kind::kJsonSchema, R"({"a":1})"}},
      {"json_object", {}, {Kind::kJson, ""}},
      {"json_object", {Given::kObject, R"({"a":1})"}, {Kind::kJsonSchema, R"({"a":1})"}},
      {"json_schema", {Given::kObject, "{}"}, {Kind::kJsonSchema, "{}"}},
      {"lark", {Given::kText, "start: \"a\""}, {Kind::kLark, "start: \"a\""}},
      {"gbnf", {Given::kText, "root ::= \"a\""}, {Kind::kGbnf, "root ::= \"a\""}},
      {"llguidance",
       {Given::kObject, R"({"grammars":[]})"},
       {Kind::kLlguidance, R"({"grammars":[]})"}},
  };
  for (const auto& [type, value, expected] : cases) {
    const Result<Grammar> grammar = make_grammar(type, value);
    ASSERT_TRUE(grammar.ok()) << type << grammar.error().message;
    EXPECT_EQ(*grammar, expected) << type << " of " << value.text;
  }
}

TEST(Grammar, OtherValuesAreRefusedByName) {
  const std::vector<std::tuple<std::string, GrammarValue, std::string>> cases = {
      {"rgx", {Given::kText, "a"}, ".type: is unknown; allowed are regex, choice, json_object"},
      {"", {}, ".type: is unknown"},
      {"regex", {}, ".value: is missing; allowed with regex is text"},
      {"regex", {Given::kList, "[]"}, ".value: is no such; allowed with regex is text"},
      {"choice", {Given::kText, "a"}, ".value: is no such; allowed with choice is a list"},
      {"json", {Given::kOther, ""}, ".value: is no such; allowed with json is a schema"},
      {"json", {Given::kList, "[1]"}, ".value: is no such; allowed with json is a schema"},
      {"json_schema", {}, ".value: is missing"},
      {"lark", {Given::kObject, "{}"}, ".value: is no such"},
      {"regex",
       {Given::kText, std::string(kMaxGrammarBytes + 1, 'a')},
       ".value: has 262145 bytes; allowed are at most 262144"},
  };
  for (const auto& [type, value, expected] : cases) {
    const Result<Grammar> grammar = make_grammar(type, value);
    ASSERT_FALSE(grammar.ok()) << type;
    EXPECT_EQ(grammar.error().message.substr(0, expected.size()), expected);
    EXPECT_EQ(grammar.error().code, ErrorCode::kInvalid);
  }
}

TEST(Grammar, ItsTypeMakesItAgain) {
  for (int kind = 0; kind <= static_cast<int>(Kind::kLlguidance); ++kind) {
    const auto is = static_cast<Kind>(kind);
    const Grammar grammar{is, is == Kind::kJson ? "" : "x"};
    const Given given = is == Kind::kJson     ? Given::kNone
                        : is == Kind::kChoice ? Given::kList
                                              : Given::kText;
    const Result<Grammar> again = make_grammar(grammar_type(is), {given, grammar.text});
    ASSERT_TRUE(again.ok()) << kind;
    EXPECT_EQ(*again, grammar);
  }
}

}  // namespace
}  // namespace lmtp

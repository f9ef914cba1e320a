// What each kind of grammar allows, and which are refused.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "lmtp/constraint/grammar_compiler.h"
#include "support/constraint_driver.h"

namespace lmtp::constraint {
namespace {

using testing::Kind;
using testing::Streams;
using Taken = testing::Streams::Taken;

class KindsTest : public ::testing::Test {
 protected:
  void expect(Kind kind, const std::string& grammar, Taken taken,
              const std::vector<std::string>& texts) {
    const auto compiled = streams_.grammar(kind, grammar);
    ASSERT_NE(compiled, nullptr);
    for (const std::string& text : texts) {
      EXPECT_EQ(streams_.take(compiled, text), taken) << grammar << ": " << text;
    }
  }

  Streams streams_;
};

TEST_F(KindsTest, GrammarsWorkHere) {
  const Result<void> support = grammar_support();
  EXPECT_TRUE(support.ok()) << support.error().message;
}

TEST_F(KindsTest, ARegexIsOfTheWholeText) {
  const std::string regex = "(\\d{3}-)?[a-f]+|ja";
  expect(Kind::kRegex, regex, Taken::kMayEnd, {"a", "123-abc", "fade"});
  expect(Kind::kRegex, regex, Taken::kEnded, {"ja"});
  expect(Kind::kRegex, regex, Taken::kMayNotEnd, {"", "123-", "12", "j"});
  expect(Kind::kRegex, regex, Taken::kRefused, {"g", "jab", " a", "123a"});
  expect(Kind::kRegex, "a/b\"\\\\", Taken::kEnded, {"a/b\"\\"});
  expect(Kind::kRegex, "^x$", Taken::kEnded, {"x"});
}

TEST_F(KindsTest, AChoiceIsOneOfItsTexts) {
  const std::string list = R"(["yes","no","not yet","a.b*","/\\x\"\n[0-9]&~#","süß €",""])";
  expect(Kind::kChoice, list, Taken::kEnded,
         {"yes", "not yet", "a.b*", "/\\x\"\n[0-9]&~#", "süß €"});
  expect(Kind::kChoice, list, Taken::kMayEnd, {"no", ""});
  expect(Kind::kChoice, list, Taken::kMayNotEnd, {"not", "ye", "a."});
  expect(Kind::kChoice, list, Taken::kRefused, {"yess", "axb", "maybe", "/\\x\"\n0"});
}

TEST_F(KindsTest, JsonIsAnyObject) {
  expect(Kind::kJson, "", Taken::kEnded,
         {"{}", R"({"a":1})", R"({"a": [1, 2.5e3, null], "b": {"c": "x\n€"}})",
          "{\n  \"a\": true,\n  \"b\": [\n    1\n  ]\n}"});
  expect(Kind::kJson, "", Taken::kMayNotEnd, {"", "{", R"({"a":)", "{ "});
  expect(Kind::kJson, "", Taken::kRefused, {"[1]", "1", "{a:1}", R"({"a":1}})", "{}  ", " {}"});
  // White space has a bound.
  expect(Kind::kJson, "", Taken::kRefused, {"{  ", "{\n\n"});
}

TEST_F(KindsTest, ASchemaIsKeptTo) {
  const std::string schema = R"({"type":"object","properties":{
    "name":{"type":"string","maxLength":4},"age":{"type":"integer","minimum":18},
    "tags":{"type":"array","items":{"enum":["a","b"]},"minItems":1}},
    "required":["name","age"],"additionalProperties":false})";
  expect(Kind::kJsonSchema, schema, Taken::kEnded,
         {R"({"name":"Ann","age":18})", R"({"name": "Ann", "age": 99, "tags": ["a", "b"]})",
          "{\n\t\"name\": \"\",\n\t\"age\": 20\n}"});
  expect(Kind::kJsonSchema, schema, Taken::kRefused,
         {R"({"name":"Annabella","age":18})", R"({"name":"Ann","age":17})", R"({"age":18})",
          R"({"name":"Ann","age":18,"tags":[]})", R"({"name":"Ann","age":18,"x":1})"});
  expect(Kind::kJsonSchema, R"({"x-guidance":{"whitespace_flexible":false},"type":"array"})",
         Taken::kRefused, {"[1, 2]"});
  expect(Kind::kJsonSchema, R"({"x-guidance":{"whitespace_flexible":true},"type":"array"})",
         Taken::kEnded, {"[1,      2]"});
  expect(Kind::kJsonSchema, "{ }", Taken::kEnded, {"[1, 2]", "{}", "\"x\""});
  expect(Kind::kJsonSchema, "true", Taken::kEnded, {"[1,2]"});
}

TEST_F(KindsTest, LarkAndItsOwnJson) {
  const std::string lark =
      "start: \"{\" item (\",\" item)* \"}\"\nitem: WORD | start\nWORD: /[a-z]+/";
  expect(Kind::kLark, lark, Taken::kEnded, {"{a}", "{ab,{c,{d}},e}"});
  expect(Kind::kLark, lark, Taken::kMayNotEnd, {"", "{a", "{{a}"});
  expect(Kind::kLark, lark, Taken::kRefused, {"a", "{}", "{a}}"});
  const std::string own = R"({"grammars":[{"lark_grammar":"start: \"x\" @j"},)"
                          R"({"name":"j","json_schema":{"type":"integer"}}]})";
  expect(Kind::kLlguidance, own, Taken::kMayEnd, {"x1", "x-20"});
  expect(Kind::kLlguidance, own, Taken::kRefused, {"1", "xx"});
}

TEST_F(KindsTest, GbnfIsReadAsLlamaCppReadsIt) {
  const std::string arithmetic =
      "root  ::= (expr \"=\" ws term \"\\n\")+ # some sums\n"
      "expr  ::= term ([-+*/] term)*\n"
      "term  ::= ident | num | \"(\" ws expr \")\" ws\n"
      "ident ::= [a-z] [a-z0-9_]* ws\n"
      "num   ::= [0-9]+ ws\n"
      "ws    ::= [ \\t\\n]*\n";
  expect(Kind::kGbnf, arithmetic, Taken::kMayEnd, {"a=b\n", "(1+x9 )*2 = 4\n", "a=1\nb=2\n"});
  expect(Kind::kGbnf, arithmetic, Taken::kMayNotEnd, {"", "a", "(1"});
  expect(Kind::kGbnf, arithmetic, Taken::kRefused, {"=", "a=b=c", "1)"});
  const std::string odd =
      "root ::= [^\"\\\\\\x00-\\x1F] .{2,3} \"\\u20AC\\\"\" fooBar-2 | \n  \"\"\n"
      "fooBar-2 ::=\n (\"x\"\n | \"\\\\\")?\n";
  expect(Kind::kGbnf, odd, Taken::kMayEnd, {"", "a\nb€\"", "üab€€\""});
  expect(Kind::kGbnf, odd, Taken::kEnded, {"abc€\"x", "abc€\"\\"});
  expect(Kind::kGbnf, odd, Taken::kRefused, {"\"", "\\", "abcde"});
}

TEST_F(KindsTest, WhatIsWrongIsSaid) {
  struct Case {
    Kind kind;
    std::string text;
    std::string said;
  };
  const std::vector<Case> cases = {
      {Kind::kRegex, "(a", "regex parse error"},
      {Kind::kRegex, "(?=a)b", "look-around"},
      {Kind::kRegex, std::string("a\0b", 3), "contains a zero byte"},
      {Kind::kRegex, "\xff", "UTF-8"},
      {Kind::kChoice, "[]", "is no list of choices"},
      {Kind::kChoice, "{\"a\":1}", "is no list of choices"},
      {Kind::kChoice, "[1]", "has a choice that is no string"},
      {Kind::kChoice, "[\"a\"", "the list of choices"},
      {Kind::kJsonSchema, "{", "EOF"},
      {Kind::kJsonSchema, "", "EOF"},
      {Kind::kJsonSchema, R"({"type":"none"})", "none"},
      {Kind::kJsonSchema, R"({"$ref":"https://example.com/x.json"})", "does not fetch"},
      {Kind::kJsonSchema, "false", "nsatisfiable"},
      {Kind::kJsonSchema, R"({"type":"object","properties":{"a":false},"required":["a"]})",
       "nsatisfiable"},
      {Kind::kLark, "", "start"},
      {Kind::kLark, "start: missing", "missing"},
      {Kind::kLark, "start: \"a", "lexer error"},
      {Kind::kLlguidance, "{\"grammars\":[]}", ""},
      {Kind::kGbnf, "", "has no rule 'root'"},
      {Kind::kGbnf, "root ::= other", "has no rule 'other'"},
      {Kind::kGbnf, "root = \"a\"", "line 1, column 6: '::=' is missing"},
      {Kind::kGbnf, "root ::= \"a\n", "line 1, column 12: the end of a literal"},
      {Kind::kGbnf, "root ::= \"\\q\"", "unknown escape"},
      {Kind::kGbnf, "root ::= [z-a]", "ends before it begins"},
      {Kind::kGbnf, "root ::= \"a\"{3,2}", "ends before it begins"},
      {Kind::kGbnf, "root ::= (\"a\"", "')' is missing"},
      {Kind::kGbnf, "root ::= )", "is not what a rule may go on with"},
      {Kind::kGbnf, "root ::= \"\\ud800\"", "hexadecimal"},
      {Kind::kGbnf, "root ::= " + std::string(100, '('), "group in more than"},
  };
  for (const Case& bad : cases) {
    const std::string said = streams_.refusal(bad.kind, bad.text);
    EXPECT_NE(said.find(bad.said), std::string::npos) << bad.text << "\n  " << said;
    EXPECT_EQ(said.find("non-verbose"), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  EXPECT_EQ(streams_.refusal(Kind::kRegex, std::string((std::size_t{4} << 20) + 1, 'a')),
            "grammar: has 4194305 bytes; allowed are at most 4194304");
}

}  // namespace
}  // namespace lmtp::constraint

// Grammars of texts, as they are within a string of JSON.
#include "generation/escaped_lark.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "generation/regular_lark.h"

namespace lmtp::server {
namespace {

std::string escaped(const std::string& lark) {
  const auto text = escaped_lark(lark);
  return text ? *text : text.error().message.substr(0, text.error().message.find(';'));
}

TEST(EscapedLark, TextsAndRegularExpressionsHaveTheEscapesOfJson) {
  const std::pair<std::string, std::string> rows[] = {
      {R"(start: "a" | b // c)", R"(start: "a" | b )"},
      {R"("\"\n")", R"("\\\"\\n")"},
      {"/a\"b/", R"(/a(?:\\\")b/)"},
      {R"(/\\\n/)", R"(/(?:\\\\)(?:\\n)/)"},
      {R"(/\x41\u{e9}/)", "/A\xc3\xa9/"},
      {R"(/./)", R"(/(?:[^"\\\x00-\x1f]|\\[\"\\rtbf])/)"},
      {R"(/(?s:.)./)",
       R"(/(?:(?:[^"\\\x00-\x1f]|\\[\"\\nrtbf]))(?:[^"\\\x00-\x1f]|\\[\"\\rtbf])/)"},
      {R"(/[a-z]+?/)", R"(/(?:[[a-z]&&[^"\\\x00-\x1f]])+?/)"},
      {R"(/[^\n"]{2}/)", R"(/(?:[[^\n"]&&[^"\\\x00-\x1f]]|\\[\\rtbf]){2}/)"},
      {R"(/\d\S/)", R"(/\d(?:[\S&&[^"\\\x00-\x1f]]|\\[\"\\b])/)"},
      {R"(/(?P<n>a)\//)", R"(/(?:a)\//)"},
      {"%import common.LF", R"(LF: "\\n")"},
      {"%import common.INT\n%ignore \" \"", "%import common.INT\n%ignore \" \""},
  };
  for (const auto& [lark, expected] : rows) EXPECT_EQ(escaped(lark), expected) << lark;
}

TEST(EscapedLark, WhatElseThereIsIsRefused) {
  const std::pair<std::string, std::string> rows[] = {
      {"start: %json {}", "has %json"},
      {"start: <tool>", "has '<'"},
      {"%import common.NOTHING", "imports common.NOTHING"},
      {"%import other.X", "has %import"},
      {R"(/a/i)", "has a regular expression with the flag i"},
      {R"(/\p{L}/)", R"(has a regular expression with '\p')"},
      {R"(/(?=a)/)", "has a regular expression with '(?'"},
      {R"(/[a&&b]/)", "has a regular expression with '[a&&b]'"},
      {R"(/[a/)", "has a regular expression with '['"},
      {R"(/[a-/)", "has a regular expression with '[a-'"},
      {R"(/[+-/*]/)", "has a regular expression with '[+-'"},
      {R"(/[a\/)", "has a regular expression that is empty or open"},
      {R"(/\uD800/)", R"(has a regular expression with '\u')"},
      {"/a", "has a regular expression that is empty or open"},
      {R"("a)", "has a text that is not as in JSON"},
      {R"("\n"i)", "has a text with escapes before 'i'"},
  };
  for (const auto& [lark, expected] : rows) EXPECT_EQ(escaped(lark), expected) << lark;
}

TEST(RegularLark, RulesAreTerminalsWhereNoneLeadsToItself) {
  const std::pair<std::string, std::string> rows[] = {
      {R"(start: "a")", R"(R_START: "a")"},
      {"?start: a (b | LF)+ \n  | c? -> d\n\n!a.2 : \"a/\"i\nb: /\\/:/ B\nc: a\nB: LF*\n"
       "%import common.LF",
       "R_START: R_A (R_B | LF)+ \n  | R_C? \n\nR_A: \"a/\"i\nR_B: /\\/:/ B\nR_C: R_A\nB: "
       "LF*\n%import common.LF"},
  };
  for (const auto& [lark, expected] : rows) {
    EXPECT_EQ(regular_lark(lark), "start: R_START\n" + expected) << lark;
  }
}

TEST(RegularLark, OthersStayAsTheyAre) {
  for (const char* const lark : {
           R"x(start: "(" start ")" | "a")x",
           "start: a\na: b\nb: a | \"b\"",
           "start: \"a\"\n%ignore \" \"",
           "start: a",
           "start: | \"a\"",
           "start: (\"a\" | )",
           "start: a \"b\"\na:\n",
           "start: \"a\"\nR_A: \"b\"",
           "start: \"a\"~3",
           "start: \"a\"..\"z\"",
           "start: \"a\"\nstart: \"b\"",
           "start: A\nA: start",
           "other: \"a\"",
       }) {
    EXPECT_EQ(regular_lark(lark), lark);
  }
}

}  // namespace
}  // namespace lmtp::server

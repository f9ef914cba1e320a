// Patterns, what they match, and what a Split makes of it.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "split_behavior.h"
#include "split_pattern.h"

namespace lmtp::tokenizer {
namespace {

using Pieces = std::vector<std::string>;

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

Pieces split(const SplitPattern& pattern, const std::string& text,
             SplitBehavior behavior = SplitBehavior::kIsolated, bool invert = false) {
  PatternScratch scratch;
  Pieces pieces;
  split_text(pattern, behavior, invert, text, scratch, [&](std::size_t begin, std::size_t end) {
    pieces.push_back(text.substr(begin, end - begin));
  });
  return pieces;
}

Pieces split(const std::string& regex, const std::string& text) {
  const auto pattern = SplitPattern::regex(regex);
  EXPECT_TRUE(pattern.ok()) << pattern.error().message;
  return split(*pattern, text);
}

TEST(SplitPattern, TakesTextApartAsLlama3Does) {
  EXPECT_EQ(split(kLlama3, "I'm 12345\n\n  ok..."),
            (Pieces{"I", "'m", " ", "123", "45", "\n\n", " ", " ok", "..."}));
  EXPECT_EQ(split(kLlama3, "IT'S  \u00E9t\u00E9\u3000\u65E5"),
            (Pieces{"IT", "'S", " ", " \u00E9t\u00E9", "\u3000\u65E5"}));
  EXPECT_EQ(split(kLlama3, "a'\u017F"), (Pieces{"a", "'\u017F"}));  // folds to s
  EXPECT_EQ(split(kLlama3, ""), Pieces{});
}

TEST(SplitPattern, KnowsSetsAndTheirOpposites) {
  EXPECT_EQ(split(R"([^a-c\s\p{Lu}\-])", "abx -Zé"), (Pieces{"ab", "x", " -Z", "é"}));
  EXPECT_EQ(split(R"([\p{^L}]+)", "a12é"), (Pieces{"a", "12", "é"}));
  EXPECT_EQ(split(R"(\P{L}+)", "a12é"), (Pieces{"a", "12", "é"}));
  EXPECT_EQ(split(R"([日-本a]+)", "x日本ay"), (Pieces{"x", "日本a", "y"}));
  EXPECT_EQ(split(R"(\x{65E5}|\u672C|\x41)", "A日本B"), (Pieces{"A", "日", "本", "B"}));
  EXPECT_EQ(split(R"(.+)", "ab\ncé"), (Pieces{"ab", "\n", "cé"}));
  EXPECT_EQ(split(R"(\w+)", "a_1-é\u00B2"), (Pieces{"a_1", "-", "é\u00B2"}));
  EXPECT_EQ(split(R"((?:ab){2}|(?<=c)d)", "ababcd"), (Pieces{"abab", "c", "d"}));
  EXPECT_EQ(split(R"(a?+a|b{,2})", "aabbb"), (Pieces{"aa", "bb", "b"}));
}

TEST(SplitPattern, CaseCountsOnlyOutside) {
  EXPECT_EQ(split(R"((?i:ab)c)", "ABc"), (Pieces{"ABc"}));
  EXPECT_EQ(split(R"((?i:ab)c)", "ABC"), (Pieces{"ABC"}));  // no match: one piece
  EXPECT_EQ(split(R"((?i:ab)c)", "xABcx"), (Pieces{"x", "ABc", "x"}));
  EXPECT_EQ(split(R"((?i:[a-b]))", "xBx"), (Pieces{"x", "B", "x"}));
}

TEST(SplitPattern, EmptyMatchesDoNotHangOrSplit) {
  EXPECT_EQ(split(R"(x*)", "axxb"), (Pieces{"a", "xx", "b"}));
}

TEST(SplitPattern, SaysWhatItDoesNotUnderstand) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"^a", "'^'"},           {"a$", "'$'"},        {R"(\bx)", R"('\b')"},
      {R"(\1)", R"('\1')"},    {"(?i)a", "'(?i'"},   {R"(\p{Han})", R"('\p{Han}')"},
      {"[[:alpha:]]", "'[:'"}, {"a{2}+", "'}+'"},    {"(a", "not closed"},
      {"a)", "not opened"},    {"[a", "not closed"}, {"[]", "'[]'"},
      {"[z-a]", "a range"},    {"a\\", "backslash"}, {R"(\xE9)", R"('\xE9')"},
      {"{x}", "'{'"},          {"*a", "pattern"}};
  for (const auto& [regex, said] : cases) {
    const auto pattern = SplitPattern::regex(regex);
    ASSERT_FALSE(pattern.ok()) << regex;
    EXPECT_NE(pattern.error().message.find(said), std::string::npos)
        << regex << ": " << pattern.error().message;
    EXPECT_NE(pattern.error().message.find("'" + regex + "'"), std::string::npos);
  }
}

TEST(SplitPattern, FindsLiteralsAndSingleCharacters) {
  EXPECT_EQ(split(SplitPattern::literal("--"), "a--b---"), (Pieces{"a", "--", "b", "--", "-"}));
  const std::vector<CodePointRange> ranges = {{'0', '9'}, {0x660, 0x669}};
  EXPECT_EQ(split(SplitPattern::one_of(ranges), "a1\u0663"), (Pieces{"a", "1", "\u0663"}));
}

TEST(SplitBehavior, JoinsMatchesAsAsked) {
  const SplitPattern dash = SplitPattern::literal("-");
  const std::string text = "The-final--countdown";
  EXPECT_EQ(split(dash, text, SplitBehavior::kRemoved), (Pieces{"The", "final", "countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kIsolated),
            (Pieces{"The", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kMergedWithPrevious),
            (Pieces{"The-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kMergedWithNext),
            (Pieces{"The", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kContiguous),
            (Pieces{"The", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kRemoved, true), (Pieces{"-", "-", "-"}));
}

// The depth that matching needs must not depend on the length of a run.
TEST(SplitPattern, LongRunsDoNotOverflow) {
  const std::string spaces(3'000'000, ' ');
  EXPECT_EQ(split(kLlama3, spaces).size(), 1U);
  EXPECT_EQ(split(kLlama3, spaces + "x").size(), 2U);
  std::string wide;
  for (int i = 0; i < 500'000; ++i) wide += "\u65E5";
  EXPECT_EQ(split(kLlama3, wide + "!").size(), 2U);
}

}  // namespace
}  // namespace lmtp::tokenizer

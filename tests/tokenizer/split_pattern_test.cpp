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
      {R"(\K)", R"('\K')"},
      {R"(\1)", R"('\1')"},
      {R"(\p{Khm})", R"('\p{Khm}')"},
      {"(?x)a", "'(?x'"},
      {"[[:alpha:]]", "'[:'"},
      {"a{2", "'{'"},
      {"(a", "not closed"},
      {"a)", "not opened"},
      {"[a", "not closed"},
      {"[]", "'[]'"},
      {"[z-a]", "a range"},
      {"a\\", "backslash"},
      {"{x}", "'{'"},
      {"*a", "pattern"},
      {R"(\xE9)", R"('\xE9')"},
      {"[a&&]", "'[]'"},
      {"[&&a]", "'[&&'"},
      {"(?i)é", "beyond ASCII"},
      {"(?i)xST", "'st without regard"}};
  for (const auto& [regex, said] : cases) {
    const auto pattern = SplitPattern::regex(regex);
    ASSERT_FALSE(pattern.ok()) << regex;
    EXPECT_NE(pattern.error().message.find(said), std::string::npos)
        << regex << ": " << pattern.error().message;
    EXPECT_NE(pattern.error().message.find("'" + regex + "'"), std::string::npos);
  }
}

TEST(SplitPattern, KnowsPlacesCaseCountsAndSetsWithinSets) {
  EXPECT_EQ(split(R"(\s+$|^b)", "a  \nb b \n"), (Pieces{"a", "  ", "\n", "b", " b", " \n"}));
  EXPECT_EQ(split(R"(\bx\b)", "x ax x-xé"), (Pieces{"x", " ax ", "x", "-xé"}));
  EXPECT_EQ(split("\\b", "ab cd"), (Pieces{"ab", " ", "cd"}));  // empty matches split
  EXPECT_EQ(split(R"(a\z)", "a a"), (Pieces{"a ", "a"}));
  EXPECT_EQ(split("a(?i)b|c", "xaBaCCacx"), (Pieces{"x", "aB", "aC", "C", "ac", "x"}));
  EXPECT_EQ(split("(?i)a(?-i)b", "AbAB"), (Pieces{"Ab", "AB"}));
  EXPECT_EQ(split(R"(\d{1,2}+)", "12345 1"), (Pieces{"12345", " ", "1"}));  // not possessive
  EXPECT_EQ(split(R"(\d{2}?)", "12345"), (Pieces{"12", "34", "5"}));        // not lazy
  EXPECT_EQ(split(R"(\d{1,3}?)", "123"), (Pieces{"1", "2", "3"}));
  EXPECT_EQ(split(R"([\p{Han}&&[^国]]+)", "a国王子"), (Pieces{"a国", "王子"}));
  EXPECT_EQ(split(R"([^(\s|[.,])]+)", "a.b (c|d"), (Pieces{"a", ".", "b", " (", "c", "|", "d"}));
}

TEST(SplitPattern, SaysWhereItGaveUp) {
  const auto pattern = SplitPattern::regex(R"((\p{L}+)+!|x)");
  ASSERT_TRUE(pattern.ok());
  const auto gives_up = [&](const std::string& text) {
    PatternScratch scratch;
    split_text(*pattern, SplitBehavior::kIsolated, false, text, scratch, [](auto, auto) {});
    return scratch.gave_up();
  };
  EXPECT_FALSE(gives_up(std::string(12, 'a') + "x"));
  EXPECT_TRUE(gives_up(std::string(40, 'a') + "x"));
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

#include "gpt2_split.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lmtp::tokenizer {
namespace {

std::vector<std::string> split(const std::string& text) {
  const CharClasses classes;
  std::vector<std::string> words;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = gpt2_word_end(classes, text, pos);
    if (end <= pos || end > text.size()) {
      ADD_FAILURE() << "no progress at " << pos << " of " << text;
      break;
    }
    words.push_back(text.substr(pos, end - pos));
    pos = end;
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(Gpt2Split, TakesTheSpaceBeforeAWordAlong) {
  EXPECT_EQ(split("Hello world 42 !?"), (Words{"Hello", " world", " 42", " !?"}));
  EXPECT_EQ(split("a1b2"), (Words{"a", "1", "b", "2"}));
}

TEST(Gpt2Split, KnowsContractionsInLowerCaseOnly) {
  EXPECT_EQ(split("I'll don't we've"), (Words{"I", "'ll", " don", "'t", " we", "'ve"}));
  EXPECT_EQ(split("I'M you're he'd 'sun"),
            (Words{"I", "'", "M", " you", "'re", " he", "'d", " '", "sun"}));
  EXPECT_EQ(split("'sun 'l '"), (Words{"'s", "un", " '", "l", " '"}));
  EXPECT_EQ(split("''s"), (Words{"''", "s"}));
}

TEST(Gpt2Split, LeavesTheLastOfSeveralSpacesToTheWord) {
  EXPECT_EQ(split("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(split("a \n b"), (Words{"a", " \n", " b"}));
  EXPECT_EQ(split("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(split("a\tb"), (Words{"a", "\t", "b"}));
  EXPECT_EQ(split("a  "), (Words{"a", "  "}));
  EXPECT_EQ(split(" "), (Words{" "}));
  EXPECT_EQ(split("a\xC2\xA0\xC2\xA0"
                  "b"),
            (Words{"a", "\xC2\xA0", "\xC2\xA0", "b"}));
  EXPECT_EQ(split("a\xE3\x80\x80 b"), (Words{"a", "\xE3\x80\x80", " b"}));
}

TEST(Gpt2Split, KnowsTheClassesOfUnicode) {
  EXPECT_EQ(split("\xC3\xA9t\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD"),
            (Words{"\xC3\xA9t\xC3\xA9", " \xE4\xBD\xA0\xE5\xA5\xBD"}));
  EXPECT_EQ(split("e\xCC\x81"), (Words{"e", "\xCC\x81"}));              // a mark is no letter
  EXPECT_EQ(split("1\xC2\xBD\xD9\xA3"), (Words{"1\xC2\xBD\xD9\xA3"}));  // one half, Arabic three
  EXPECT_EQ(split(" \xF0\x9F\x98\x80!"), (Words{" \xF0\x9F\x98\x80!"}));
  EXPECT_EQ(split("\xE1\xA0\x8E "), (Words{"\xE1\xA0\x8E", " "}));  // U+180E is no space any more
  // U+1C89, a letter since Unicode 16.
  EXPECT_EQ(split("a\xE1\xB2\x89"), (Words{"a\xE1\xB2\x89"}));
}

TEST(WordChars, IncludeMarksAndConnectors) {
  for (const char32_t c : {U'a', U'7', U'_', U'\u0301', U'\u00E9', U'\u4F60', U'\u203F'}) {
    EXPECT_TRUE(is_word_char(c)) << static_cast<std::uint32_t>(c);
  }
  for (const char32_t c : {U' ', U'-', U'\u00A0', U'\u00BD', U'\U0001F600', char32_t{0x10FFFF}}) {
    EXPECT_FALSE(is_word_char(c)) << static_cast<std::uint32_t>(c);
  }
}

}  // namespace
}  // namespace lmtp::tokenizer

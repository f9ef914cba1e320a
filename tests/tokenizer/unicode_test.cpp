// Categories, the table of classes, and normal forms.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "code_point_table.h"
#include "unicode_data.h"
#include "unicode_forms.h"

namespace lmtp::tokenizer {
namespace {

std::string normal(UnicodeForm form, const std::string& text) {
  const UnicodeFormer former(form);
  std::string out;
  former.apply(text, out);
  if (out != text) {
    EXPECT_TRUE(former.may_change(text)) << text;
  }
  return out;
}

TEST(UnicodeData, KnowsCategories) {
  const auto upper = ranges_of(categories_named("Lu"));
  EXPECT_TRUE(contains(upper, U'A'));
  EXPECT_FALSE(contains(upper, U'a'));
  EXPECT_TRUE(contains(upper, U'Ж'));
  const auto letters = ranges_of(categories_named("L"));
  EXPECT_TRUE(contains(letters, 0x323AE));  // of Unicode 15, which PCRE2 10.42 does not know
  EXPECT_FALSE(contains(letters, U'1'));
  EXPECT_TRUE(contains(ranges_of(categories_named("Cn")), kCodePointMax));
  EXPECT_EQ(categories_named("Xx"), 0U);
  EXPECT_EQ(categories_named(""), 0U);
  const auto others = complement(letters);
  EXPECT_TRUE(contains(others, U'1'));
  EXPECT_FALSE(contains(others, U'x'));
  EXPECT_EQ(others.back().last, kCodePointMax);
}

TEST(UnicodeData, LowersCase) {
  EXPECT_EQ(lower_case(U'A'), U'a');
  EXPECT_EQ(lower_case(U'a'), U'a');
  EXPECT_EQ(lower_case(U'Ā'), U'ā');
  EXPECT_EQ(lower_case(U'ā'), U'ā');  // between two capitals of the same run
  EXPECT_EQ(lower_case(0x1E9E), U'ß');
  EXPECT_EQ(lower_case(0x10400), char32_t{0x10428});
}

TEST(CodePointTable, HoldsWhatWasSet) {
  CodePointTable table;
  table.set({0x80, 0x3FFF}, 1);
  table.set({0x123, 0x123}, 2);  // inside a page that others share
  table.set({0x200, 0x2FF}, 3);
  table.set({0x2FF, 0x300}, 4);
  table.set({0x10FFFF, 0x10FFFF}, 5);
  const std::vector<std::pair<char32_t, int>> expected = {
      {0x7F, 0},  {0x80, 1},  {0x122, 1}, {0x123, 2}, {0x124, 1},  {0x1FF, 1},  {0x200, 3},
      {0x2FE, 3}, {0x2FF, 4}, {0x300, 4}, {0x301, 1}, {0x3FFF, 1}, {0x4000, 0}, {0x10FFFF, 5}};
  for (const auto& [c, value] : expected) {
    EXPECT_EQ(table.of(c), value) << static_cast<std::uint32_t>(c);
  }
}

TEST(UnicodeForms, ComposesAndDecomposes) {
  EXPECT_EQ(normal(UnicodeForm::kNfc, "e\u0301x"), "\u00E9x");
  EXPECT_EQ(normal(UnicodeForm::kNfd, "\u00E9x"), "e\u0301x");
  EXPECT_EQ(normal(UnicodeForm::kNfc, "a\u0301\u0323b"), "\u1EA1\u0301b");  // sorted, then composed
  EXPECT_EQ(normal(UnicodeForm::kNfd, "\u1EA5"), "a\u0302\u0301");          // twice
  EXPECT_EQ(normal(UnicodeForm::kNfc, "\u2126\u212B"), "\u03A9\u00C5");
  EXPECT_EQ(normal(UnicodeForm::kNfkc, "\uFB01\u00B2"), "fi2");
  EXPECT_EQ(normal(UnicodeForm::kNfc, "\uFB01"), "\uFB01");
  EXPECT_EQ(normal(UnicodeForm::kNfkd, "\uFF21"), "A");
}

TEST(UnicodeForms, AMarkInBetweenBlocks) {
  // Both marks have class 230: the second does not compose past the first.
  EXPECT_EQ(normal(UnicodeForm::kNfc, "a\u0305\u0301"), "a\u0305\u0301");
  EXPECT_EQ(normal(UnicodeForm::kNfc, "a\u0323\u0301"), "\u1EA1\u0301");
  // Excluded from composition.
  EXPECT_EQ(normal(UnicodeForm::kNfc, "\u0958"), "\u0915\u093C");
}

TEST(UnicodeForms, HangulIsArithmetic) {
  EXPECT_EQ(normal(UnicodeForm::kNfc, "\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(normal(UnicodeForm::kNfd, "\uAC01\uAC00"), "\u1100\u1161\u11A8\u1100\u1161");
  EXPECT_EQ(normal(UnicodeForm::kNfc, "\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(normal(UnicodeForm::kNfc, "\uAC01\u11A8"), "\uAC01\u11A8");
}

TEST(UnicodeForms, PlainTextIsLeftAlone) {
  const UnicodeFormer former(UnicodeForm::kNfc);
  for (const char* text : {"", "plain", "\u00E9t\u00E9", "\u65E5\u672C", "\uAC01"}) {
    EXPECT_FALSE(former.may_change(text)) << text;
    EXPECT_EQ(normal(UnicodeForm::kNfc, text), text);
  }
}

}  // namespace
}  // namespace lmtp::tokenizer

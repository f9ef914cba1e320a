#include "normalizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::tokenizer {
namespace {

using Kind = NormalizerStep::Kind;

NormalizerStep step(Kind kind, const std::string& content = "") {
  NormalizerStep made;
  made.kind = kind;
  made.content = content;
  return made;
}

NormalizerStep replace(const std::string& what, const std::string& by) {
  NormalizerStep made = step(Kind::kReplace, by);
  made.pattern = SplitPattern::literal(what);
  return made;
}

std::pair<std::string, bool> apply(std::vector<NormalizerStep> steps, const std::string& text) {
  const Normalizer normalizer(std::move(steps));
  NormalizerScratch scratch;
  const auto result = normalizer.apply(text, scratch);
  return {std::string(result.text), result.front_moved};
}

std::string text_of(std::vector<NormalizerStep> steps, const std::string& text) {
  return apply(std::move(steps), text).first;
}

TEST(Normalizer, WithoutStepsIsTheText) { EXPECT_EQ(text_of({}, "a b"), "a b"); }

TEST(Normalizer, StepsFollowEachOther) {
  EXPECT_EQ(text_of({step(Kind::kPrepend, "_"), replace(" ", "_")}, "a b  c"), "_a_b__c");
  EXPECT_EQ(text_of({step(Kind::kPrepend, "_"), replace(" ", "_")}, ""), "");
  EXPECT_EQ(text_of({replace("x", ""), step(Kind::kPrepend, "_")}, "xx"), "");
  EXPECT_EQ(text_of({replace("a", "b"), replace("b", "c"), replace("c", "d")}, "abc"), "ddd");
}

TEST(Normalizer, StripsWhiteSpaceOfAllKinds) {
  NormalizerStep both = step(Kind::kStrip);
  both.strip_left = both.strip_right = true;
  EXPECT_EQ(text_of({both}, " \u3000a b\u2003\n"), "a b");
  EXPECT_EQ(text_of({both}, " \n "), "");
  NormalizerStep right = step(Kind::kStrip);
  right.strip_right = true;
  EXPECT_EQ(text_of({right}, " a\u3000"), " a");
}

TEST(Normalizer, LowersCase) {
  EXPECT_EQ(text_of({step(Kind::kLowercase)}, "ÀB\u0130\u1E9E"), "àbi\u0307ß");
}

TEST(Normalizer, NmtDropsControlsAndMakesSpaces) {
  EXPECT_EQ(text_of({step(Kind::kNmt)},
                    "\x01"
                    "a\tb\u200B\uFEFFc\x7F"),
            "a b  c");
}

TEST(Normalizer, ReplacesWhatARegexFinds) {
  NormalizerStep runs = step(Kind::kReplace, " ");
  runs.pattern = *SplitPattern::regex(" {2,}");
  EXPECT_EQ(text_of({runs}, "a  b   c d"), "a b c d");
}

// Metaspace's prepend_scheme "first" depends on it.
TEST(Normalizer, KnowsWhetherTheFrontMoved) {
  NormalizerStep left = step(Kind::kStrip);
  left.strip_left = true;
  EXPECT_TRUE(apply({left}, " a").second);
  EXPECT_FALSE(apply({left}, "a ").second);
  EXPECT_TRUE(apply({step(Kind::kNmt)},
                    "\x01"
                    "a")
                  .second);
  EXPECT_FALSE(apply({replace(" ", "_")}, " a").second);
  EXPECT_TRUE(apply({replace("--", "-")}, "--a").second);
  EXPECT_TRUE(apply({replace(" ", "")}, " a").second);
  EXPECT_FALSE(apply({step(Kind::kPrepend, "_")}, "a").second);
}

}  // namespace
}  // namespace lmtp::tokenizer

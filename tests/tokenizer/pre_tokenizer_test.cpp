#include "pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lmtp::tokenizer {
namespace {

using PreTokenizerKind = PreTokenizerStep::Kind;
using Words = std::vector<std::string>;

class Collector final : public WordSink {
 public:
  void take_word(std::string_view word) override { words.emplace_back(word); }
  Words words;
};

PreTokenizerStep pre_tokenizer_step(PreTokenizerKind kind, const std::string& content = "_") {
  PreTokenizerStep made;
  made.kind = kind;
  made.content = content;
  return made;
}

Words words_of(const PreTokenizer& pre_tokenizer, const std::string& text, bool at_start = true) {
  PreTokenizerScratch scratch;
  Collector collector;
  pre_tokenizer.run(text, at_start, scratch, collector);
  return collector.words;
}

TEST(PreTokenizer, WithoutStepsGivesOneWord) {
  EXPECT_EQ(words_of(PreTokenizer(), "a b"), (Words{"a b"}));
  EXPECT_EQ(words_of(PreTokenizer(), ""), Words{});
}

TEST(PreTokenizer, MetaspaceAlways) {
  const PreTokenizer pre_tokenizer({pre_tokenizer_step(PreTokenizerKind::kReplace),
                                    pre_tokenizer_step(PreTokenizerKind::kPrepend),
                                    pre_tokenizer_step(PreTokenizerKind::kMarkStarts)});
  EXPECT_EQ(words_of(pre_tokenizer, "a  b"), (Words{"_a", "_", "_b"}));
  EXPECT_EQ(words_of(pre_tokenizer, " a"), (Words{"_a"}));
  EXPECT_EQ(words_of(pre_tokenizer, "a ", false), (Words{"_a", "_"}));
}

TEST(PreTokenizer, MetaspaceFirst) {
  PreTokenizerStep prepend = pre_tokenizer_step(PreTokenizerKind::kPrepend);
  prepend.first_only = true;
  const PreTokenizer pre_tokenizer({pre_tokenizer_step(PreTokenizerKind::kReplace), prepend});
  EXPECT_EQ(words_of(pre_tokenizer, "a b"), (Words{"_a_b"}));
  EXPECT_EQ(words_of(pre_tokenizer, "a b", false), (Words{"a_b"}));
}

TEST(PreTokenizer, OnlyTheFirstPieceIsAtTheStart) {
  PreTokenizerStep split = pre_tokenizer_step(PreTokenizerKind::kSplit);
  split.pattern = SplitPattern::literal("-");
  PreTokenizerStep prepend = pre_tokenizer_step(PreTokenizerKind::kPrepend);
  prepend.first_only = true;
  const PreTokenizer pre_tokenizer({split, prepend});
  EXPECT_EQ(words_of(pre_tokenizer, "a-b"), (Words{"_a", "-", "b"}));
  EXPECT_EQ(words_of(pre_tokenizer, "-b"), (Words{"_-", "b"}));
}

TEST(PreTokenizer, StepsWorkOnThePiecesOfThoseBefore) {
  PreTokenizerStep digits = pre_tokenizer_step(PreTokenizerKind::kSplit);
  digits.pattern = SplitPattern::one_of(digit_ranges());
  const PreTokenizer pre_tokenizer({digits, pre_tokenizer_step(PreTokenizerKind::kPrepend, " "),
                                    pre_tokenizer_step(PreTokenizerKind::kGpt2Words)});
  EXPECT_EQ(words_of(pre_tokenizer, "a b12"), (Words{" a", " b", " 1", " 2"}));
}

TEST(PreTokenizer, WordsMayEndBeforeMarks) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.split_at_marks("_");
  EXPECT_EQ(words_of(pre_tokenizer, "__a_b__"), (Words{"__a", "_b", "__"}));
  EXPECT_EQ(words_of(pre_tokenizer, "ab"), (Words{"ab"}));
}

}  // namespace
}  // namespace lmtp::tokenizer

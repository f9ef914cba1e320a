#include "lmtp/request/top_logprobs.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace lmtp {
namespace {

std::vector<TokenLogprob> many(int count) {
  std::vector<TokenLogprob> tops;
  for (int i = 0; i < count; ++i) tops.push_back({i, -0.5F * static_cast<float>(i)});
  return tops;
}

// One more at a time, and from all at once and then one more.
TEST(TopLogprobs, HoldsWhatAVectorHolds) {
  TopLogprobs grown;
  EXPECT_TRUE(grown.empty());
  for (int count = 1; count <= 40; ++count) {
    const std::vector<TokenLogprob> expected = many(count);
    grown.push_back(expected.back());
    TopLogprobs made = many(count - 1);
    made.push_back(expected.back());
    EXPECT_EQ(std::vector<TokenLogprob>(grown.begin(), grown.end()), expected);
    EXPECT_EQ(made, grown) << count;
    EXPECT_EQ(made.size(), expected.size());
    EXPECT_EQ(made[expected.size() - 1], expected.back());
  }
  EXPECT_FALSE(grown == TopLogprobs(many(39)));
}

TEST(TopLogprobs, ACopyIsItsOwnAndWhatWasMovedFromIsEmpty) {
  for (const int count : {0, 1, 2, 5}) {
    TopLogprobs first = many(count);
    TopLogprobs copy = first;
    copy.push_back({99, 0.0F});
    EXPECT_EQ(first, TopLogprobs(many(count))) << count;
    TopLogprobs moved = std::move(first);
    EXPECT_TRUE(first.empty());  // NOLINT: that is asked
    EXPECT_EQ(moved, TopLogprobs(many(count)));
    first = copy;
    EXPECT_EQ(first, copy);
    moved = std::move(copy);
    EXPECT_EQ(moved, first);
    EXPECT_EQ(moved.size(), static_cast<std::size_t>(count) + 1);
  }
}

}  // namespace
}  // namespace lmtp

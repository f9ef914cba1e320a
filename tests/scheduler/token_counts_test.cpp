#include "lmtp/scheduler/token_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <span>
#include <vector>

namespace lmtp {
namespace {

TEST(TokenCountsTest, TokenByTokenIsACountOfAll) {
  std::mt19937 generator(4);
  scheduler::TokenCounts counts;
  std::vector<TokenId> tokens;
  std::map<TokenId, std::int32_t> expected;
  for (int round = 0; round < 200; ++round) {
    const int num_new = round % 50 == 0 ? 300 : 1 + round % 3;  // many are merged, few inserted
    for (int i = 0; i < num_new; ++i) {
      tokens.push_back(static_cast<TokenId>(generator() % 500));
      ++expected[tokens.back()];
    }
    counts.update(tokens);
    ASSERT_EQ(counts.num_counted(), tokens.size());
    std::map<TokenId, std::int32_t> counted;
    for (const auto& [id, count] : counts.entries()) EXPECT_TRUE(counted.emplace(id, count).second);
    ASSERT_EQ(counted, expected);
  }
  // With a prompt, of whose tokens there are entries, and no counts.
  constexpr std::size_t kPrompt = 400;
  for (std::size_t i = 0; i < kPrompt; ++i) --expected[tokens[i]];
  for (const std::size_t step : {std::size_t{7}, std::size_t{150}, tokens.size()}) {
    scheduler::TokenCounts from;
    for (std::size_t end = 0; end < tokens.size();) {
      end = std::min(end + step, tokens.size());
      from.update(std::span(tokens).first(end), kPrompt);
    }
    std::map<TokenId, std::int32_t> counted;
    for (const auto& [id, count] : from.entries()) EXPECT_TRUE(counted.emplace(id, count).second);
    EXPECT_EQ(counted, expected) << step;
  }
  counts.clear();
  EXPECT_EQ(counts.num_counted(), 0U);
  EXPECT_TRUE(counts.entries().empty());
}

}  // namespace
}  // namespace lmtp

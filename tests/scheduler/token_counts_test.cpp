#include "lmtp/scheduler/token_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
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
  counts.clear();
  EXPECT_EQ(counts.num_counted(), 0U);
  EXPECT_TRUE(counts.entries().empty());
}

}  // namespace
}  // namespace lmtp

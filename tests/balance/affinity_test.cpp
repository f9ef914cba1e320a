#include "affinity.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace lmtp::balance {
namespace {

std::vector<TokenId> ids(int first, int count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(Affinity, AChainHasAHashForEachWholeBlock) {
  EXPECT_TRUE(block_chain("m", ids(0, 15), {}, 2048).empty());
  EXPECT_EQ(block_chain("m", ids(0, 16), {}, 2048).size(), 1U);
  EXPECT_EQ(block_chain("m", ids(0, 100), {}, 2048).size(), 6U);
  EXPECT_EQ(block_chain("m", ids(0, 100), {}, 40).size(), 2U);
  EXPECT_TRUE(block_chain("m", ids(0, 100), {}, 0).empty());
}

TEST(Affinity, WhatWasGeneratedContinuesThePrompt) {
  const std::vector<TokenId> all = ids(0, 64);
  const std::span<const TokenId> tokens(all);
  EXPECT_EQ(block_chain("m", tokens.first(21), tokens.subspan(21), 2048),
            block_chain("m", tokens, {}, 2048));
}

TEST(Affinity, EachHashIsOfAllBeforeItAndOfTheModel) {
  std::vector<TokenId> other = ids(0, 64);
  other[0] = 7;
  const auto one = block_chain("m", ids(0, 64), {}, 2048);
  const auto changed = block_chain("m", other, {}, 2048);
  const auto adapter = block_chain("adapter", ids(0, 64), {}, 2048);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_NE(one[i], changed[i]);
    EXPECT_NE(one[i], adapter[i]);
  }
}

TEST(Affinity, TheLongestKnownBeginningDecides) {
  AffinityTable table(1000);
  const auto shared = block_chain("m", ids(0, 32), {}, 2048);
  std::vector<TokenId> longer = ids(0, 64);
  table.set(shared, 1);
  table.set(block_chain("m", longer, {}, 2048), 2);
  longer[50] = -1;
  const auto known = table.find(block_chain("m", longer, {}, 2048));
  ASSERT_TRUE(known);
  EXPECT_EQ(known->worker, 2U);
  EXPECT_EQ(known->num_blocks, 3U);
  EXPECT_FALSE(table.find(block_chain("m", ids(5, 64), {}, 2048)));
}

TEST(Affinity, WhatIsUsedStaysAndTheRestIsForgotten) {
  constexpr std::size_t kCapacity = 100;
  AffinityTable table(kCapacity);
  const std::vector<std::uint64_t> used = {1};
  const std::vector<std::uint64_t> unused = {2};
  table.set(used, 5);
  table.set(unused, 6);
  for (std::uint64_t hash = 10; hash < 1000; ++hash) {
    table.set(std::vector<std::uint64_t>{hash}, 0);
    ASSERT_TRUE(table.find(used));
    ASSERT_LE(table.size(), kCapacity);
  }
  EXPECT_EQ(table.find(used)->worker, 5U);
  EXPECT_FALSE(table.find(unused));
}

}  // namespace
}  // namespace lmtp::balance

#include "merges.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace lmtp::tokenizer {
namespace {

using Tokens = std::vector<TokenId>;

// The definition, with no thought of speed: the reference of the tests below.
Tokens merged_plainly(const Merges& merges, Tokens word) {
  for (;;) {
    std::size_t best = 0;
    Merges::Merge best_merge;
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const Merges::Merge merge = merges.find(word[i], word[i + 1]);
      if (merge.rank < best_merge.rank) {
        best = i;
        best_merge = merge;
      }
    }
    if (best_merge.rank == Merges::kNone) return word;
    word[best] = best_merge.merged;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Tokens 0..3 are letters; every merge makes a new token of two that exist.
Merges random_merges(std::mt19937& random, int num_merges) {
  Merges merges;
  TokenId next = 4;
  for (int rank = 0; rank < num_merges; ++rank) {
    std::uniform_int_distribution<TokenId> any(0, next - 1);
    const TokenId left = any(random);
    const TokenId right = any(random);
    if (merges.find(left, right).rank != Merges::kNone) continue;
    merges.add(left, right, {static_cast<std::uint32_t>(rank), next++});
  }
  return merges;
}

TEST(Merges, LowestRankFirstAndLeftmostOfEquals) {
  Merges merges;
  merges.add(0, 0, {0, 10});   // aa
  merges.add(10, 1, {1, 11});  // aab
  merges.add(0, 1, {2, 12});   // ab
  Tokens word{0, 0, 0, 1};     // aaab
  merges.apply(word);
  EXPECT_EQ(word, (Tokens{10, 12}));
  word = {0, 0, 1};
  merges.apply(word);
  EXPECT_EQ(word, (Tokens{11}));
}

TEST(Merges, APairGivenTwiceKeepsTheLast) {
  Merges merges;
  merges.add(0, 1, {0, 5});
  merges.add(0, 1, {7, 6});
  EXPECT_EQ(merges.find(0, 1).rank, 7U);
  EXPECT_EQ(merges.find(0, 1).merged, 6);
  EXPECT_EQ(merges.find(1, 0).rank, Merges::kNone);
}

TEST(Merges, ShortAndLongWordsFollowTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    const Merges merges = random_merges(random, 30);
    for (const std::size_t size : {0U, 1U, 2U, 5U, 31U, 32U, 33U, 34U, 64U, 300U}) {
      std::uniform_int_distribution<TokenId> letter(0, 3);
      Tokens word(size);
      for (TokenId& token : word) token = letter(random);
      const Tokens expected = merged_plainly(merges, word);
      merges.apply(word);
      ASSERT_EQ(word, expected) << "size " << size << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace lmtp::tokenizer

#include "word_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lmtp::tokenizer {
namespace {

TEST(WordCache, KeepsTheTokensOfAWord) {
  WordCache cache;
  WordCache::WordSlot& slot = cache.slot_of("word");
  EXPECT_FALSE(WordCache::holds(slot, "word"));
  WordCache::store(slot, "word", std::vector<TokenId>{7, 8});
  ASSERT_TRUE(WordCache::holds(cache.slot_of("word"), "word"));
  EXPECT_EQ(slot.num_tokens, 2);
  EXPECT_EQ(slot.tokens[1], 8);
  EXPECT_FALSE(WordCache::holds(slot, "wort"));
  EXPECT_FALSE(WordCache::holds(slot, "wor"));
}

TEST(WordCache, LeavesWordsOfManyTokensOut) {
  WordCache cache;
  WordCache::WordSlot& slot = cache.slot_of("abc");
  WordCache::store(slot, "abc", std::vector<TokenId>(WordCache::kTokensMax + 1, 1));
  EXPECT_FALSE(WordCache::holds(slot, "abc"));
}

TEST(WordCache, ANewcomerTakesTheSlot) {
  WordCache cache;
  const std::string first = "first";
  std::string second;
  for (int i = 0; i < 1'000'000; ++i) {
    second = std::to_string(i);
    if (&cache.slot_of(second) == &cache.slot_of(first)) break;
  }
  ASSERT_EQ(&cache.slot_of(second), &cache.slot_of(first));
  WordCache::store(cache.slot_of(first), first, std::vector<TokenId>{1});
  WordCache::store(cache.slot_of(second), second, std::vector<TokenId>{2});
  EXPECT_FALSE(WordCache::holds(cache.slot_of(first), first));
  EXPECT_TRUE(WordCache::holds(cache.slot_of(second), second));
}

}  // namespace
}  // namespace lmtp::tokenizer

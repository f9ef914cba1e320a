#include "lmtp/cache/score_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "counting.h"

namespace lmtp::cache {
namespace {

using testing::counting;
using Tokens = std::span<const TokenId>;

constexpr std::int64_t kPlenty = 1 << 20;

// What is known of a prefix is told apart from all others.
float number_of(Tokens tokens) {
  float number = -0.5F;
  for (const TokenId token : tokens) number = -std::fmod(number * -31.0F + 7.0F * token, 1009.0F);
  return number;
}

// The tokens [first, end) of a text, as a request for them would: up to so many together.
void add(ScoreCache& cache, Tokens tokens, std::size_t first, int name_space = 0,
         std::size_t together = kBlockSize) {
  ScoreCache::Place place;
  std::vector<float> logprobs;
  for (std::size_t end = first + 1; end <= tokens.size(); ++end) {
    logprobs.push_back(number_of(tokens.first(end)));
    if (end % kBlockSize != 0 && end < tokens.size() && logprobs.size() < together) continue;
    cache.add(name_space, tokens.first(end), logprobs, place);
    logprobs.clear();
  }
}

// How many are known, one after another, from there on.
std::size_t num_known(ScoreCache& cache, Tokens tokens, std::size_t first, int name_space = 0) {
  ScoreCache::Place place;
  std::size_t count = 0;
  for (std::size_t end = first + 1; end <= tokens.size(); ++end, ++count) {
    const std::optional<float> found = cache.find(name_space, tokens.first(end), place);
    if (!found) break;
    EXPECT_EQ(*found, number_of(tokens.first(end))) << end;
  }
  return count;
}

TEST(ScoreCache, WhatWasAddedIsFoundWhateverItsLength) {
  for (std::size_t prompt = 0; prompt <= 2 * kBlockSize + 1; ++prompt) {
    for (const std::size_t size : {1, 2, 15, 16, 17, 31, 32, 33, 40}) {
      ScoreCache cache(kPlenty);
      const auto text = counting(3, static_cast<int>(prompt + size));
      add(cache, text, prompt, 0, 1 + size % 7);
      EXPECT_EQ(num_known(cache, text, prompt), size) << prompt;
      // Any part of it, and what is before or behind it is not.
      EXPECT_EQ(num_known(cache, text, prompt + size / 2), size - size / 2);
      EXPECT_EQ(num_known(cache, Tokens(text).first(prompt + (size + 1) / 2), prompt),
                (size + 1) / 2);
      if (prompt > 0) {
        EXPECT_EQ(num_known(cache, text, prompt - 1), 0U);
      }
      auto longer = text;
      longer.push_back(9);
      EXPECT_EQ(num_known(cache, longer, prompt), size);
      cache.check_invariants();
    }
  }
}

TEST(ScoreCache, CandidatesBehindOnePrefixAreApart) {
  ScoreCache cache(kPlenty);
  for (int candidate = 0; candidate < 100; ++candidate) {
    auto text = counting(0, 21);
    text.insert(text.end(), {candidate, 7, candidate % 3});
    add(cache, text, 21);
  }
  for (int candidate = 0; candidate < 101; ++candidate) {
    auto text = counting(0, 21);
    text.insert(text.end(), {candidate, 7, candidate % 3});
    EXPECT_EQ(num_known(cache, text, 21), candidate < 100 ? 3U : 0U) << candidate;
  }
  cache.check_invariants();
}

TEST(ScoreCache, NamespacesShareNothing) {
  ScoreCache cache(kPlenty);
  const auto text = counting(0, 40);
  for (const int name_space : {0, 5}) add(cache, text, 10, name_space);
  EXPECT_EQ(num_known(cache, text, 10, 0), 30U);
  EXPECT_EQ(num_known(cache, text, 10, 5), 30U);
  EXPECT_EQ(num_known(cache, text, 10, 1), 0U);
}

TEST(ScoreCache, WhatStandsStaysAndInfinityIsANumber) {
  ScoreCache cache(kPlenty);
  const std::vector<TokenId> text = {1, 2};
  ScoreCache::Place place;
  const float impossible = -std::numeric_limits<float>::infinity();
  cache.add(0, text, std::array{impossible}, place);
  cache.add(0, text, std::array{-1.0F}, place);
  EXPECT_EQ(cache.find(0, text, place), impossible);
}

TEST(ScoreCache, AFullBlockIsABoundaryWithAndWithoutItsOwn) {
  ScoreCache cache(kPlenty);
  const auto text = counting(0, kBlockSize + 1);
  add(cache, text, kBlockSize);
  EXPECT_EQ(num_known(cache, text, kBlockSize - 1), 0U) << "the block's last one is not known";
  add(cache, Tokens(text).first(kBlockSize), kBlockSize - 1);
  EXPECT_EQ(num_known(cache, text, kBlockSize - 1), 2U);
}

TEST(ScoreCache, AChangedSequenceBeginsAnew) {
  ScoreCache cache(kPlenty);
  const auto text = counting(0, 40);
  const auto other = counting(100, 10);
  add(cache, text, 0);
  add(cache, other, 0);
  ScoreCache::Place place;
  EXPECT_EQ(cache.find(0, text, place), number_of(text));
  EXPECT_EQ(place.num_blocks, 2);
  EXPECT_EQ(cache.find(0, other, place), number_of(other)) << "shorter than where it stood";
}

TEST(ScoreCache, TheLeastRecentlyUsedGoesAndTheLimitHolds) {
  constexpr std::int64_t kLimit = 20'000;
  ScoreCache cache(kLimit);
  EXPECT_EQ(cache.num_bytes_max(), kLimit);
  const auto kept = counting(0, 20);
  add(cache, kept, 18);
  for (int other = 1; other < 400; ++other) {
    add(cache, counting(other * 50, 20), 18);
    EXPECT_EQ(num_known(cache, kept, 18), 2U) << other;
    ASSERT_LE(cache.num_bytes(), kLimit);
  }
  EXPECT_GT(cache.num_bytes(), kLimit - 1000);
  EXPECT_EQ(num_known(cache, counting(50, 20), 18), 0U);
  EXPECT_EQ(num_known(cache, counting(399 * 50, 20), 18), 2U);
  cache.check_invariants();
}

TEST(ScoreCache, WithoutRoomItIsOff) {
  for (const std::int64_t limit : {0, 1, 255, 511}) {
    const ScoreCache cache(limit);
    EXPECT_FALSE(cache.is_on()) << limit;
    EXPECT_LE(cache.num_bytes(), limit);
    cache.check_invariants();
  }
  EXPECT_TRUE(ScoreCache(512).is_on());
}

// Whatever it has dropped, what it gives is what a map of all prefixes has.
TEST(ScoreCache, AsAMapOfPrefixes) {
  constexpr int kAll = 1 << 23;
  for (const int limit : {512, 2000, 30'000, kAll}) {
    ScoreCache cache(limit);
    std::mt19937 random(static_cast<unsigned>(limit));
    const auto below = [&random](std::size_t most) { return random() % most; };
    std::map<std::pair<int, std::vector<TokenId>>, float> all;
    std::size_t num_found = 0;
    for (int i = 0; i < 3000; ++i) {
      std::vector<TokenId> text;
      for (auto more = 1 + below(50); more > 0; --more) {
        text.push_back(text.size() % 5 == 0 ? static_cast<TokenId>(below(2)) : 0);
      }
      const int name_space = static_cast<int>(below(2));
      ScoreCache::Place place;
      for (std::size_t end = 1 + below(text.size()); end <= text.size(); ++end) {
        const Tokens tokens = Tokens(text).first(end);
        const auto known = all.find({name_space, {tokens.begin(), tokens.end()}});
        if (const auto found = cache.find(name_space, tokens, place)) {
          ASSERT_NE(known, all.end());
          ASSERT_EQ(*found, known->second);
          ++num_found;
        } else if (limit == kAll) {
          ASSERT_EQ(known, all.end());
        }
        if (below(2) == 0) continue;
        const float logprob = known != all.end() ? known->second : -static_cast<float>(i);
        cache.add(name_space, tokens, std::array{logprob}, place);
        all[{name_space, {tokens.begin(), tokens.end()}}] = logprob;
      }
      if (i % 100 == 0) cache.check_invariants();
      ASSERT_LE(cache.num_bytes(), limit);
    }
    EXPECT_GT(num_found, 0U) << limit;
  }
}

}  // namespace
}  // namespace lmtp::cache

#include "lmtp/cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "counting.h"

namespace lmtp::cache {
namespace {

using testing::counting;

class PrefixCacheTest : public ::testing::Test {
 protected:
  // As a sequence would: full blocks, then the partial one, each below the one before.
  std::vector<BlockId> insert_path(const std::vector<TokenId>& tokens, int name_space = 0) {
    std::vector<BlockId> path;
    const std::span<const TokenId> all(tokens);
    for (std::size_t at = 0; at < tokens.size(); at += kBlockSize) {
      const BlockId block = cache_.allocate();
      EXPECT_NE(block, kNoBlock);
      const auto held = all.subspan(at, std::min<std::size_t>(kBlockSize, tokens.size() - at));
      const BlockId node =
          cache_.insert(path.empty() ? PrefixCache::root(name_space) : path.back(), held, block);
      if (node != kNoBlock && node != block) {
        pool_.pin(node);
        pool_.unpin(block, false);
        path.push_back(node);
      } else {
        path.push_back(block);
      }
    }
    return path;
  }

  BlockPool pool_{10};
  PrefixCache cache_{pool_};
};

TEST_F(PrefixCacheTest, WhatFollowedATextIsFoundUpToTheEndOfItsBlock) {
  const auto tokens = counting(0, 40);
  const auto path = insert_path(tokens);
  const std::span<const TokenId> all(tokens);
  const auto following = [&](BlockId parent, std::size_t first, std::size_t count) {
    const auto found = cache_.following(parent, all.subspan(first, count));
    return std::vector<TokenId>(found.begin(), found.end());
  };
  const BlockId root = PrefixCache::root(0);
  for (std::size_t count = 1; count < kBlockSize; ++count) {
    EXPECT_EQ(following(root, 0, count),
              counting(static_cast<int>(count), kBlockSize - static_cast<int>(count)));
  }
  EXPECT_EQ(following(path[0], 16, 5), counting(21, 11));
  EXPECT_EQ(following(path[1], 32, 3), counting(35, 5)) << "a partial block";
  for (const std::size_t count : {0U, 16U}) EXPECT_TRUE(following(root, 0, count).empty());
  EXPECT_TRUE(following(path[1], 32, 8).empty()) << "nothing is behind it";
  EXPECT_TRUE(following(root, 1, 3).empty()) << "another text";
  EXPECT_TRUE(following(path[0], 0, 3).empty()) << "elsewhere";
  EXPECT_TRUE(following(PrefixCache::root(1), 0, 3).empty()) << "another namespace";
  cache_.unpin_path(path);
  EXPECT_EQ(following(root, 0, 15), counting(15, 1)) << "evictable";
}

TEST_F(PrefixCacheTest, MatchesFullBlocksAndAPartialOne) {
  const auto tokens = counting(0, 40);
  const auto path = insert_path(tokens);
  cache_.unpin_path(path);
  const PrefixMatch all = cache_.match(0, tokens);
  EXPECT_EQ(all.num_tokens(), 40);
  EXPECT_EQ(all.blocks, (std::vector<BlockId>{path[0], path[1]}));
  EXPECT_EQ(all.partial, path[2]);
  EXPECT_EQ(all.num_partial, 8);
  // Inside the second block: a part of a full node.
  const PrefixMatch some = cache_.match(0, std::span(tokens).first(20));
  EXPECT_EQ(some.num_tokens(), 20);
  EXPECT_EQ(some.partial, path[1]);
  EXPECT_EQ(some.num_partial, 4);
  cache_.check_invariants();
}

TEST_F(PrefixCacheTest, NamespacesShareNothing) {
  const auto tokens = counting(0, 20);
  std::vector<std::vector<BlockId>> paths;
  for (const int name_space : {0, 1, 7}) {
    EXPECT_EQ(cache_.match(name_space, tokens).num_tokens(), 0);
    paths.push_back(insert_path(tokens, name_space));
  }
  EXPECT_EQ(cache_.match(7, tokens).blocks, (std::vector<BlockId>{paths[2][0]}));
  EXPECT_EQ(cache_.match(7, tokens).partial, paths[2][1]);
  EXPECT_EQ(cache_.match(1, std::span(tokens).first(5)).partial, paths[1][0]);
  EXPECT_EQ(cache_.match(2, tokens).num_tokens(), 0);
  cache_.check_invariants();
}

TEST_F(PrefixCacheTest, ComparesTokensExactly) {
  auto tokens = counting(0, 32);
  cache_.unpin_path(insert_path(tokens));
  tokens[20] = 999;
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), 20);
  tokens[0] = 999;
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), 0);
  // The second block's tokens mean nothing without the first block's before them.
  EXPECT_EQ(cache_.match(0, counting(16, 16)).num_tokens(), 0);
}

TEST_F(PrefixCacheTest, EqualBlocksAreKeptOnce) {
  const auto tokens = counting(0, 32);
  const auto first = insert_path(tokens);
  const auto second = insert_path(tokens);
  EXPECT_EQ(first, second);
  EXPECT_EQ(pool_.num_pinned(), 2);
  cache_.unpin_path(first);
  cache_.unpin_path(second);
  EXPECT_EQ(pool_.num_evictable(), 2);
  cache_.check_invariants();
}

TEST_F(PrefixCacheTest, EvictsLeavesFirst) {
  const auto path = insert_path(counting(0, 48));
  cache_.unpin_path(path);
  for (int i = 0; i < 6; ++i) ASSERT_NE(cache_.allocate(), kNoBlock);  // the free ones
  EXPECT_EQ(cache_.allocate(), path[2]);
  EXPECT_EQ(cache_.match(0, counting(0, 48)).num_tokens(), 32);
  EXPECT_EQ(cache_.allocate(), path[1]);
  EXPECT_EQ(cache_.allocate(), path[0]);
  EXPECT_EQ(cache_.allocate(), kNoBlock);
  cache_.check_invariants();
}

TEST_F(PrefixCacheTest, AGrowingPartialBlockStaysIndexed) {
  const auto tokens = counting(0, 20);
  const auto path = insert_path(std::vector<TokenId>(tokens.begin(), tokens.begin() + 18));
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), 18);
  EXPECT_EQ(cache_.extend(path[1], std::span(tokens).subspan(16)), path[1]);
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), 20);
  cache_.check_invariants();
}

TEST_F(PrefixCacheTest, AShorterUnpinnedSiblingIsReplaced) {
  const auto tokens = counting(0, 10);
  cache_.unpin_path(insert_path(std::vector<TokenId>(tokens.begin(), tokens.begin() + 4)));
  EXPECT_EQ(pool_.num_evictable(), 1);
  cache_.unpin_path(insert_path(tokens));
  EXPECT_EQ(pool_.num_evictable(), 1);
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), 10);
  // And what a longer sibling begins with is not indexed at all.
  cache_.unpin_path(insert_path(std::vector<TokenId>(tokens.begin(), tokens.begin() + 6)));
  EXPECT_EQ(pool_.num_evictable(), 1);
  cache_.check_invariants();
}

TEST_F(PrefixCacheTest, PrefersAPartialBlockThatCanBeTakenOver) {
  auto pinned = counting(0, 4);
  pinned.push_back(100);
  auto unpinned = counting(0, 4);
  unpinned.push_back(200);
  insert_path(pinned);  // its owner goes on writing
  const auto path = insert_path(unpinned);
  cache_.unpin_path(path);
  auto wanted = unpinned;
  wanted.push_back(7);
  const PrefixMatch match = cache_.match(0, wanted);
  EXPECT_EQ(match.partial, path[0]);
  EXPECT_EQ(match.num_partial, 5);
}

// A template whose end lies inside a block, with a different question each time.
TEST(PrefixCacheSiblings, MoreSiblingsThanTheLimitAreStillFound) {
  BlockPool pool(8 * PrefixCache::kMaxSiblings);
  PrefixCache cache(pool);
  const int num_questions = 2 * PrefixCache::kMaxSiblings + 10;
  const auto question = [](int number) {
    auto tokens = counting(0, 6);
    tokens.push_back(1'000 + number);
    for (int i = 0; i < 20; ++i) tokens.push_back(i);
    return tokens;  // a full block and a partial one
  };
  for (int number = 0; number < num_questions; ++number) {
    const auto tokens = question(number);
    const std::span<const TokenId> all(tokens);
    const BlockId full = cache.allocate();
    const BlockId partial = cache.allocate();
    ASSERT_EQ(cache.insert(kNoBlock, all.first(kBlockSize), full), full);
    ASSERT_EQ(cache.insert(full, all.subspan(kBlockSize), partial), partial);
    cache.unpin_path(std::vector<BlockId>{full, partial});
  }
  cache.check_invariants();
  for (int number = 0; number < num_questions; ++number) {
    EXPECT_EQ(cache.match(0, question(number)).num_tokens(), 27) << number;
  }
  // A question never asked shares the template with the newest ones.
  EXPECT_EQ(cache.match(0, question(-1)).num_tokens(), 6);
}

// Hits of any length are the longest there are, against all blocks compared one by one.
// A short hit is looked up by parent and first token, small numbers both.
TEST(PrefixCacheSiblings, AHitOfOneTokenIsFoundBelowEachParent) {
  constexpr int kParents = 64;
  BlockPool pool(2 * kParents + 1);  // with the null block
  PrefixCache cache(pool);
  const auto path_of = [](TokenId p) {
    std::vector<TokenId> tokens(kBlockSize, p);
    tokens.insert(tokens.end(), {p * p % 61, 1, 2});
    return tokens;
  };
  for (TokenId p = 0; p < kParents; ++p) {
    const std::vector<TokenId> tokens = path_of(p);
    const std::span<const TokenId> all(tokens);
    const BlockId parent =
        cache.insert(PrefixCache::root(0), all.first(kBlockSize), cache.allocate());
    cache.insert(parent, all.subspan(kBlockSize), cache.allocate());
  }
  for (TokenId p = 0; p < kParents; ++p) {
    const std::vector<TokenId> tokens = path_of(p);
    for (int count = 1; count <= 3; ++count) {
      const int length = kBlockSize + count;
      EXPECT_EQ(cache.match(0, std::span(tokens).first(length)).num_tokens(), length) << p;
    }
  }
  cache.check_invariants();
}

TEST(PrefixCacheSiblings, TheLongestHitIsFound) {
  BlockPool pool(400);
  PrefixCache cache(pool);
  std::mt19937 random(3);
  const auto draw = [&random] {
    std::vector<TokenId> tokens = {9};  // as a BOS token
    for (auto more = random() % kBlockSize; more > 0; --more) {
      tokens.push_back(static_cast<TokenId>(random() % 3));
    }
    return tokens;
  };
  std::vector<std::vector<TokenId>> kept;
  for (int i = 0; i < 300; ++i) {
    const std::vector<TokenId> tokens = draw();
    const BlockId block = cache.allocate();
    const BlockId node = cache.insert(PrefixCache::root(0), tokens, block);
    cache.unpin_path(std::vector<BlockId>{block});
    if (node != kNoBlock) kept.push_back(tokens);
    cache.check_invariants();
  }
  for (int i = 0; i < 2000; ++i) {
    const std::vector<TokenId> wanted = draw();
    std::ptrdiff_t longest = 0;
    for (const auto& tokens : kept) {
      const auto end = std::ranges::mismatch(wanted, tokens).in1;
      longest = std::max(longest, end - wanted.begin());
    }
    ASSERT_EQ(cache.match(0, wanted).num_tokens(), longest) << i;
  }
}

TEST(PrefixCacheSiblings, UnpinnedPartialBlocksBeyondTheLimitAreFreed) {
  BlockPool pool(4 * PrefixCache::kMaxSiblings);
  PrefixCache cache(pool);
  for (int number = 0; number < 2 * PrefixCache::kMaxSiblings; ++number) {
    const std::vector<TokenId> tokens = {1, 2, 3, 4, number};
    const BlockId partial = cache.allocate();
    ASSERT_EQ(cache.insert(kNoBlock, tokens, partial), partial);
    cache.unpin_path(std::vector<BlockId>{partial});
  }
  EXPECT_EQ(pool.num_evictable(), PrefixCache::kMaxSiblings);
  const std::vector<TokenId> newest = {1, 2, 3, 4, 2 * PrefixCache::kMaxSiblings - 1};
  EXPECT_EQ(cache.match(0, newest).num_tokens(), 5);
  cache.check_invariants();
}

// With five blocks of the pool, and blocks of the host, numbered from 6 on.
class HostBlocksTest : public ::testing::Test {
 protected:
  explicit HostBlocksTest(int num_host_blocks = 10) : cache_(pool_, num_host_blocks) {}

  std::vector<BlockId> add(const std::vector<TokenId>& tokens) {
    std::vector<BlockId> path;
    for (std::size_t at = 0; at < tokens.size(); at += kBlockSize) {
      const BlockId block = cache_.allocate();
      const auto held =
          std::span(tokens).subspan(at, std::min<std::size_t>(kBlockSize, tokens.size() - at));
      EXPECT_EQ(cache_.insert(path.empty() ? PrefixCache::root(0) : path.back(), held, block),
                block);
      path.push_back(block);
    }
    return path;
  }
  void add_idle(const std::vector<TokenId>& tokens) {
    cache_.unpin_path(add(tokens));
    cache_.check_invariants();
  }
  std::vector<BlockId> fetch(const PrefixMatch& match) {
    for (const BlockId block : match.blocks) pool_.pin(block);
    std::vector<BlockId> path = match.blocks;
    cache_.fetch(match, path);
    cache_.check_invariants();
    return path;
  }
  bool is_host(BlockId block) const { return block > pool_.num_total(); }

  BlockPool pool_{6};
  PrefixCache cache_;
};

class FewHostBlocksTest : public HostBlocksTest {
 protected:
  FewHostBlocksTest() : HostBlocksTest(3) {}
};

TEST_F(HostBlocksTest, WhatIsEvictedGoesThereAndComesBack) {
  const auto first = counting(0, 2 * kBlockSize);
  add_idle(first);
  EXPECT_TRUE(cache_.moves().empty());
  add_idle(counting(100, 4 * kBlockSize));  // one block short: the deepest goes
  ASSERT_EQ(cache_.moves().size(), 1U);
  EXPECT_TRUE(is_host(cache_.moves()[0].to));
  const PrefixMatch match = cache_.match(0, first);
  EXPECT_EQ(match.blocks.size(), 1U);
  EXPECT_EQ(match.host, std::vector<BlockId>{cache_.moves()[0].to});
  EXPECT_EQ(match.num_tokens(), 2 * kBlockSize);
  cache_.clear_moves();
  const std::vector<BlockId> path = fetch(match);
  ASSERT_EQ(path.size(), 2U);
  ASSERT_EQ(cache_.moves().size(), 2U) << "another one made room";
  EXPECT_TRUE(is_host(cache_.moves()[0].to));
  EXPECT_EQ(cache_.moves()[1].from, match.host[0]);
  EXPECT_EQ(cache_.moves()[1].to, path[1]);
  EXPECT_EQ(cache_.match(0, first).blocks, path);
  cache_.unpin_path(path);
}

// What the host has already is not copied again, and what is not full is dropped.
TEST_F(HostBlocksTest, OnlyFullBlocksThatItDoesNotHaveAreCopied) {
  const auto tokens = counting(0, kBlockSize + 5);
  add_idle(tokens);
  cache_.unpin_path(add(counting(100, 5 * kBlockSize)));
  ASSERT_EQ(cache_.moves().size(), 1U);
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), kBlockSize);
  cache_.unpin_path(fetch(cache_.match(0, tokens)));
  cache_.clear_moves();
  std::vector<BlockId> all;
  for (int i = 0; i < pool_.num_total(); ++i) all.push_back(cache_.allocate());
  EXPECT_EQ(cache_.moves().size(), 4U);
  EXPECT_EQ(cache_.match(0, tokens).host.size(), 1U);
  cache_.check_invariants();
}

TEST_F(HostBlocksTest, WhatIsComputedAgainIsHeldByBoth) {
  const auto tokens = counting(0, kBlockSize);
  add_idle(tokens);
  cache_.unpin_path(add(counting(100, 5 * kBlockSize)));
  ASSERT_EQ(cache_.match(0, tokens).host.size(), 1U);
  add_idle(tokens);
  EXPECT_EQ(cache_.match(0, tokens).blocks.size(), 1U);
  EXPECT_TRUE(cache_.match(0, tokens).host.empty());
}

TEST_F(HostBlocksTest, AllIsForgotten) {
  const auto tokens = counting(0, 5 * kBlockSize);
  add_idle(tokens);
  cache_.unpin_path(add(counting(200, 2 * kBlockSize)));
  cache_.clear();
  EXPECT_EQ(pool_.num_free(), pool_.num_total());
  EXPECT_EQ(cache_.host().num_free(), cache_.host().num_total());
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), 0);
  EXPECT_TRUE(cache_.moves().empty());
  cache_.check_invariants();
}

// Against the tokens that each block holds, written down at each move and insertion.
TEST_F(FewHostBlocksTest, BlocksHoldWhatIsMatchedWhateverMoves) {
  std::mt19937 random(5);
  std::vector<std::vector<TokenId>> holds(
      static_cast<std::size_t>(pool_.num_total() + cache_.host().num_total()) + 1);
  const auto at = [&](BlockId block) -> auto& { return holds[static_cast<std::size_t>(block)]; };
  const auto carry_out = [&] {
    for (const BlockMove& move : cache_.moves()) at(move.to) = at(move.from);
    cache_.clear_moves();
  };
  int num_fetched = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> tokens;
    const auto num_blocks = static_cast<std::size_t>(1 + random() % 4);
    while (tokens.size() < num_blocks * kBlockSize) {
      tokens.insert(tokens.end(), kBlockSize, static_cast<TokenId>(random() % 3));
    }
    const PrefixMatch match = cache_.match(0, tokens);
    ASSERT_EQ(match.partial, kNoBlock);
    num_fetched += static_cast<int>(match.host.size());
    std::vector<BlockId> path = fetch(match);
    carry_out();
    for (std::size_t i = 0; i < num_blocks; ++i) {
      const auto held = std::span(tokens).subspan(i * kBlockSize, kBlockSize);
      // All tokens up to its own, on which keys and values depend.
      const std::vector<TokenId> upto(
          tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * kBlockSize));
      if (i == path.size()) {
        path.push_back(cache_.allocate());
        carry_out();
        at(path[i]) = upto;
        ASSERT_EQ(cache_.insert(i == 0 ? PrefixCache::root(0) : path[i - 1], held, path[i]),
                  path[i]);
      }
      ASSERT_EQ(at(path[i]), upto) << round;
    }
    cache_.unpin_path(path);
    cache_.check_invariants();
  }
  EXPECT_GT(num_fetched, 500);
}

}  // namespace
}  // namespace lmtp::cache

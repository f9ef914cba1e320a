// Groups of layers with windows in the trie and in a sequence's blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "counting.h"
#include "lmtp/cache/sequence_blocks.h"

namespace lmtp::cache {
namespace {

using testing::counting;
using testing::joined;

constexpr KvLayout kThreeGroups{.num_groups = 3, .windows = {0, 16, 40}, .num_written_max = 64};

// A text that was computed in one step.
SequenceBlocks computed_in(PrefixCache& cache, const std::vector<TokenId>& tokens) {
  SequenceBlocks blocks;
  EXPECT_TRUE(blocks.extend(cache, static_cast<int>(tokens.size())));
  blocks.index(cache, 0, tokens, true);
  blocks.pass(cache, static_cast<int>(tokens.size()));
  cache.check_invariants();
  return blocks;
}

class GroupsTest : public ::testing::Test {
 protected:
  SequenceBlocks computed(const std::vector<TokenId>& tokens) {
    return computed_in(cache_, tokens);
  }
  // Takes so many blocks for something else.
  void use_up(int count) {
    for (int i = 0; i < count; ++i) {
      const BlockId block = cache_.allocate();
      ASSERT_NE(block, kNoBlock);
      taken_.push_back(block);
    }
    cache_.check_invariants();
  }
  int num_matched(const std::vector<TokenId>& tokens) const {
    return cache_.match(0, tokens).num_tokens();
  }

  BlockPool pool_{101};
  PrefixCache cache_{pool_, 0, kThreeGroups};
  std::vector<BlockId> taken_;
};

TEST_F(GroupsTest, ASequenceGivesBackWhatLiesBeforeItsWindows) {
  const auto tokens = counting(0, 132);
  SequenceBlocks blocks = computed(tokens);
  EXPECT_EQ(blocks.size(), 9);
  // The token at 132 sees those from 117 on, and from 93 on; 32 before them are kept.
  EXPECT_EQ(blocks.first(1), 5);
  EXPECT_EQ(blocks.first(2), 3);
  EXPECT_EQ(blocks.num_held(kThreeGroups), 9 + 4 + 6);
  EXPECT_EQ(pool_.num_pinned(), 19);
  EXPECT_EQ(pool_.num_evictable(), 5 + 3);
  EXPECT_EQ(blocks.in_group(4, 1), kNullBlock);
  EXPECT_EQ(blocks.num_alone(pool_), 19);
  EXPECT_EQ(blocks.num_more(kThreeGroups, 144, 1), 0);
  EXPECT_EQ(blocks.num_more(kThreeGroups, 240, 1), 15 - 9) << "windows move on";
  EXPECT_EQ(blocks.num_more(kThreeGroups, 240, 17), 15 - 9 + 1 + 1);
  blocks.release(cache_);
  EXPECT_EQ(pool_.num_evictable(), 27);
  EXPECT_EQ(num_matched(tokens), 132);
}

TEST_F(GroupsTest, AMatchEndsWhereEachGroupHasWhatIsSeen) {
  const auto tokens = counting(0, 132);
  computed(tokens).release(cache_);
  EXPECT_EQ(num_matched(counting(0, 70)), 70) << "all of it is there";
  use_up(100 - 27 + 1);  // the first block that was passed goes: block 0 of the window of 16
  EXPECT_EQ(num_matched(tokens), 132);
  EXPECT_EQ(num_matched(counting(0, 16)), 0) << "its window lacks a token";
  EXPECT_EQ(num_matched(counting(0, 32)), 32);
  use_up(4);  // blocks 1 to 4
  EXPECT_EQ(num_matched(counting(0, 80)), 0) << "no end before has all";
  EXPECT_EQ(num_matched(counting(0, 96)), 96) << "a step back finds what was kept";
  use_up(3);  // blocks 0 to 2 of the window of 40
  EXPECT_EQ(num_matched(tokens), 132);
  EXPECT_EQ(pool_.num_evictable(), 19);
}

// The largest window is of 40 tokens: there is a checkpoint at each 10th block.
TEST_F(GroupsTest, BlocksBeforeACheckpointAreNotEvictedFirst) {
  const SequenceBlocks blocks = computed(counting(0, 320));
  EXPECT_EQ(blocks.first(1), 17);
  EXPECT_EQ(blocks.first(2), 15);
  use_up(100 - 60 + (17 - 1) + (15 - 3));  // what is free, and all that was passed but 1 and 3
  EXPECT_EQ(pool_.num_evictable(), 4);
  EXPECT_EQ(num_matched(counting(0, 250)), 160);
  EXPECT_EQ(num_matched(counting(0, 144)), 0);
}

// By hand: a sequence that begins at a checkpoint needs just the blocks that are before it.
TEST(KvLayoutTest, CheckpointsHaveWhatASequenceNeeds) {
  for (const int window : {1, 2, 16, 17, 40, 500}) {
    const KvLayout layout{.num_groups = 3, .windows = {0, window, 40}, .num_written_max = 8};
    const int distance = (4 * std::max(window, 40) + kBlockSize - 1) / kBlockSize;
    for (int block = 0; block < 3 * distance; ++block) {
      const int checkpoint = (block / distance + 1) * distance;
      EXPECT_EQ(layout.is_before_checkpoint(1, block),
                block >= layout.first_block(1, checkpoint * kBlockSize))
          << window << ' ' << block;
    }
  }
}

TEST_F(GroupsTest, BlocksThatTwoHaveUsedAreNotEvictedFirst) {
  const SequenceBlocks first = computed(counting(0, 112));
  const auto other = joined(counting(0, 64), counting(500, 64));
  const SequenceBlocks second = computed(other);
  EXPECT_EQ(second[3], first[3]);
  EXPECT_EQ(second.first(1), 5);
  EXPECT_EQ(second.first(2), 3);
  use_up(pool_.num_free() + 1);  // block 4 of the second one in the window of 16
  EXPECT_EQ(num_matched(other), 128);
  EXPECT_EQ(num_matched(counting(0, 64)), 64);
}

TEST_F(GroupsTest, APartialNodeThatLosesABlockGoes) {
  computed(counting(0, 40)).release(cache_);
  use_up(100 - 9 + 1);
  EXPECT_EQ(pool_.num_free(), 2) << "its other blocks";
  EXPECT_EQ(num_matched(counting(0, 40)), 32);
  // Nor is it in the way of another one with fewer of its tokens.
  for (const BlockId block : taken_) pool_.unpin(block, false);
  computed(counting(0, 36)).release(cache_);
  EXPECT_EQ(num_matched(counting(0, 40)), 36);
}

TEST_F(GroupsTest, ASequenceBeginsWithWhatItsWindowsSee) {
  const auto tokens = counting(0, 112);
  SequenceBlocks first = computed(tokens);
  first.release(cache_);
  const PrefixMatch match = cache_.match(0, tokens);
  ASSERT_EQ(match.num_tokens(), 112);
  // 7 without a window, of 8 in the end; 97 to 111 and 73 to 111 are seen.
  EXPECT_EQ(SequenceBlocks::num_to_take(cache_, match, 120), 8 + (1 + 1) + (3 + 1));
  SequenceBlocks second;
  EXPECT_EQ(second.take(cache_, match).from, kNoBlock);
  EXPECT_EQ(pool_.num_pinned(), 7 + 1 + 3);
  ASSERT_TRUE(second.extend(cache_, 120));
  EXPECT_EQ(pool_.num_pinned(), 8 + 2 + 4);
  EXPECT_EQ(second.first(1), 6);
  EXPECT_EQ(second.first(2), 4);
}

TEST_F(GroupsTest, APartialBlockIsCopiedInEachGroup) {
  SequenceBlocks writes = computed(counting(0, 40));
  const PrefixMatch match = cache_.match(0, counting(0, 60));
  ASSERT_EQ(match.num_tokens(), 40);
  SequenceBlocks blocks;
  const BlockMove copy = blocks.take(cache_, match);
  EXPECT_EQ(copy.from, writes[2]);
  for (int group = 0; group < kThreeGroups.num_groups; ++group) {
    EXPECT_EQ(cache_.in_group(copy.from, group), writes.in_group(2, group));
    EXPECT_NE(blocks.in_group(2, group), writes.in_group(2, group));
    EXPECT_EQ(pool_.num_refs(writes.in_group(2, group)), 2) << "pinned until it is copied";
  }
}

// A text that is computed again gives its node what it has lost, and takes over what it has.
TEST_F(GroupsTest, ANodeGetsBackWhatItLost) {
  const auto tokens = counting(0, 100);
  const SequenceBlocks first = computed(tokens);
  use_up(100 - 21 + 2);  // blocks 0 and 1 of the window of 16
  EXPECT_EQ(num_matched(counting(0, 40)), 0);
  for (const BlockId block : taken_) pool_.unpin(block, false);
  SequenceBlocks again = computed(counting(0, 40));
  EXPECT_EQ(again[0], first[0]);
  EXPECT_EQ(num_matched(counting(0, 40)), 40);
  again.release(cache_);
  cache_.check_invariants();
  EXPECT_EQ(num_matched(counting(0, 40)), 40);
}

// From where a match ends without its partial block more of a window may be seen.
TEST_F(GroupsTest, AMatchWithoutItsPartialBlockIsWholeToo) {
  computed(counting(0, 152)).release(cache_);
  use_up(100 - 30 + 6 + 5);  // all that was passed: blocks 0 to 5 and 0 to 4 of the windows
  PrefixMatch match = cache_.match(0, counting(0, 120));
  EXPECT_EQ(match.num_tokens(), 120) << "81 to 119 are there";
  cache_.drop_partial(match);
  EXPECT_EQ(match.num_tokens(), 0) << "73 to 79 are not";
  EXPECT_EQ(match.partial, kNoBlock);
}

// What is evicted of each group goes to blocks of the host, numbered from 31 on.
class GroupsOnHostTest : public ::testing::Test {
 protected:
  static constexpr KvLayout kWithHost{.num_groups = 2, .windows = {0, 40}, .num_written_max = 64};

  SequenceBlocks computed(const std::vector<TokenId>& tokens) {
    return computed_in(cache_, tokens);
  }
  // All that is evictable is evicted.
  void use_up() {
    std::vector<BlockId> taken;
    for (BlockId block; (block = cache_.allocate()) != kNoBlock;) taken.push_back(block);
    for (const BlockId block : taken) pool_.unpin(block, false);
    cache_.check_invariants();
  }

  BlockPool pool_{31};
  PrefixCache cache_{pool_, 40, kWithHost};
};

TEST_F(GroupsOnHostTest, AMatchTakesOfEachGroupWhatTheHostHas) {
  const auto tokens = counting(0, 160);
  computed(tokens).release(cache_);
  use_up();
  // 10 of group 0, and of the window the 5 that the stream had in the end; blocks 0 to 4 were
  // passed, and dropped.
  EXPECT_EQ(cache_.moves().size(), 15U);
  PrefixMatch match = cache_.match(0, tokens);
  EXPECT_EQ(match.num_tokens(), 160);
  EXPECT_TRUE(match.blocks.empty());
  EXPECT_EQ(match.host.size(), 10U);
  EXPECT_EQ(match.windows.size(), 3U) << "121 to 159 are seen";
  EXPECT_EQ(SequenceBlocks::num_to_take(cache_, match, 170), 11 + 4);
  EXPECT_EQ(cache_.match(0, counting(0, 50)).num_tokens(), 0);
  EXPECT_EQ(cache_.match(0, counting(0, 112)).num_tokens(), 0);
  EXPECT_EQ(cache_.match(0, counting(0, 128)).num_tokens(), 128);
  cache_.clear_moves();
  SequenceBlocks blocks;
  blocks.take(cache_, match);
  EXPECT_EQ(cache_.moves().size(), 13U);
  EXPECT_EQ(blocks.num_held(kWithHost), 10 + 3);
  EXPECT_EQ(blocks.first(1), 7);
  EXPECT_EQ(cache_.in_group(blocks[9], 1), blocks.in_group(9, 1));
  cache_.check_invariants();
  // It is in both places: evicted again, nothing is copied.
  blocks.release(cache_);
  cache_.clear_moves();
  use_up();
  EXPECT_TRUE(cache_.moves().empty());
  // All that it needs is fetched once more.
  match = cache_.match(0, tokens);
  blocks.take(cache_, match);
  blocks.pass(cache_, 160);
  EXPECT_EQ(cache_.match(0, tokens).num_on_host(), 0);
  blocks.release(cache_);
  cache_.set_host_pays(false);
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), 160);
  use_up();
  EXPECT_EQ(cache_.match(0, tokens).num_tokens(), 0);
}

TEST_F(GroupsOnHostTest, WhatTheHostDropsOfAWindowIsFoundNoMore) {
  computed(counting(0, 160)).release(cache_);
  use_up();
  computed(counting(1000, 160)).release(cache_);
  use_up();
  computed(counting(2000, 160)).release(cache_);
  use_up();
  // 3 of 15 each have no place in 40: the first blocks that went there are gone.
  EXPECT_EQ(cache_.match(0, counting(0, 160)).num_tokens(), 0);
  EXPECT_EQ(cache_.match(0, counting(1000, 160)).num_tokens(), 160);
  EXPECT_EQ(cache_.match(0, counting(2000, 160)).num_tokens(), 160);
  EXPECT_EQ(cache_.host().num_free(), 0);
  cache_.clear();
  EXPECT_EQ(cache_.host().num_free(), 40);
  cache_.check_invariants();
}

// A partial block of the pool, and a window of which the host has the rest.
TEST_F(GroupsOnHostTest, APartialBlockStaysWhileTheWindowComes) {
  const auto tokens = counting(0, 100);
  SequenceBlocks first = computed(counting(0, 96));
  first.release(cache_);
  use_up();
  SequenceBlocks second;
  second.take(cache_, cache_.match(0, counting(0, 96)));
  ASSERT_TRUE(second.extend(cache_, 100));
  second.index(cache_, 0, tokens, true);
  second.release(cache_);
  std::vector<BlockId> taken;
  while (cache_.match(0, tokens).num_on_host() == 0 &&
         cache_.match(0, tokens).num_tokens() == 100) {
    taken.push_back(cache_.allocate());
    ASSERT_NE(taken.back(), kNoBlock);
  }
  for (const BlockId block : taken) pool_.unpin(block, false);
  const PrefixMatch match = cache_.match(0, tokens);
  SequenceBlocks third;
  third.take(cache_, match);
  EXPECT_EQ(third.size(), match.num_blocks() + (match.partial == kNoBlock ? 0 : 1));
  cache_.check_invariants();
}

// Layers of one window, and stubs by which their blocks are found.
class StubsTest : public ::testing::Test {
 protected:
  static constexpr KvLayout kOneWindow{
      .num_groups = 2, .windows = {0, 40}, .num_written_max = 64, .has_stubs = true};

  SequenceBlocks computed(const std::vector<TokenId>& tokens) {
    SequenceBlocks blocks;
    EXPECT_TRUE(blocks.extend(cache_, static_cast<int>(tokens.size())));
    blocks.index(cache_, 0, tokens, true);
    blocks.pass(cache_, static_cast<int>(tokens.size()));
    cache_.check_invariants();
    return blocks;
  }
  int num_matched(const std::vector<TokenId>& tokens) const {
    return cache_.match(0, tokens).num_tokens();
  }

  BlockPool pool_{21, 30};
  PrefixCache cache_{pool_, 0, kOneWindow};
};

TEST_F(StubsTest, ASequenceHoldsItsWindowAlone) {
  const auto tokens = counting(0, 260);
  SequenceBlocks blocks = computed(tokens);
  EXPECT_EQ(blocks.size(), 17);
  // The token at 260 sees those from 221 on; 32 before them are kept.
  EXPECT_EQ(blocks.first(1), 11);
  EXPECT_EQ(blocks.num_held(kOneWindow), 6);
  EXPECT_EQ(blocks.num_alone(pool_), 6);
  EXPECT_EQ(blocks.num_more(kOneWindow, 300, 1), 0) << "the window moves on";
  EXPECT_EQ(pool_.num_pinned(), 6);
  EXPECT_EQ(pool_.stubs().pinned, 17);
  blocks.release(cache_);
  EXPECT_EQ(pool_.num_evictable(), 17);
  EXPECT_EQ(pool_.stubs().evictable, 17);
  EXPECT_EQ(num_matched(tokens), 260);
  const PrefixMatch match = cache_.match(0, tokens);
  EXPECT_EQ(SequenceBlocks::num_to_take(cache_, match, 272), 4);
}

// 17 blocks of the first are evicted as the second needs them; the end of a third goes on from what
// is there, and what has no block left is found by nobody.
TEST_F(StubsTest, ATextIsFoundAsFarAsItsWindowIsThere) {
  const auto tokens = counting(0, 260);
  computed(tokens).release(cache_);
  const SequenceBlocks other = computed(counting(1000, 150));
  EXPECT_EQ(num_matched(tokens), 260) << "blocks that were passed went";
  EXPECT_EQ(num_matched(counting(0, 100)), 0);
  EXPECT_EQ(pool_.stubs().evictable, 17) << "stubs stay";
  SequenceBlocks again = computed(counting(0, 100));
  EXPECT_EQ(num_matched(counting(0, 100)), 96) << "a full node begins with the last four";
  EXPECT_EQ(pool_.stubs().pinned, 10 + 7) << "the nodes of the first text have blocks again";
  again.release(cache_);
  cache_.check_invariants();
}

// A stub that is needed is the least recently used one, and the blocks of its node go with it.
TEST_F(StubsTest, StubsAreEvictedAsBlocksAre) {
  computed(counting(0, 260)).release(cache_);
  std::vector<BlockId> taken;
  for (int i = 0; i < 13; ++i) taken.push_back(cache_.allocate(0));
  EXPECT_EQ(num_matched(counting(0, 260)), 260);
  const int num_free = pool_.num_free();
  taken.push_back(cache_.allocate(0));
  EXPECT_TRUE(pool_.is_stub(taken.back()));
  EXPECT_EQ(pool_.num_free(), num_free + 1);
  EXPECT_EQ(num_matched(counting(0, 260)), 256);
  for (int i = 0; i < 16; ++i) taken.push_back(cache_.allocate(0));
  EXPECT_EQ(cache_.allocate(0), kNoBlock);
  EXPECT_EQ(pool_.num_free(), 20);
  for (const BlockId stub : taken) pool_.unpin(stub, false);
  computed(counting(0, 100)).release(cache_);
  cache_.clear();
  EXPECT_EQ(pool_.num_free(), 20);
  EXPECT_EQ(pool_.stubs().free, 30);
  cache_.check_invariants();
}

}  // namespace
}  // namespace lmtp::cache

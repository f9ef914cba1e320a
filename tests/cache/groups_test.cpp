// Groups of layers with windows in the trie and in a sequence's blocks.
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "counting.h"
#include "lmtp/cache/sequence_blocks.h"

namespace lmtp::cache {
namespace {

using testing::counting;

constexpr KvLayout kThreeGroups{.num_groups = 3, .windows = {0, 16, 40}, .num_written_max = 64};

class GroupsTest : public ::testing::Test {
 protected:
  // A text that was computed in one step.
  SequenceBlocks computed(const std::vector<TokenId>& tokens) {
    SequenceBlocks blocks;
    EXPECT_TRUE(blocks.extend(cache_, static_cast<int>(tokens.size())));
    blocks.index(cache_, 0, tokens, true);
    blocks.pass(cache_, static_cast<int>(tokens.size()));
    cache_.check_invariants();
    return blocks;
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
  const auto tokens = counting(0, 100);
  SequenceBlocks blocks = computed(tokens);
  EXPECT_EQ(blocks.size(), 7);
  // The token at 100 sees those from 85 on, and from 61 on.
  EXPECT_EQ(blocks.first(1), 5);
  EXPECT_EQ(blocks.first(2), 3);
  EXPECT_EQ(blocks.num_held(), 7 + 2 + 4);
  EXPECT_EQ(pool_.num_pinned(), 13);
  EXPECT_EQ(pool_.num_evictable(), 5 + 3);
  EXPECT_EQ(blocks.in_group(4, 1), kNullBlock);
  EXPECT_EQ(blocks.num_alone(pool_), 13);
  EXPECT_EQ(blocks.num_more(kThreeGroups, 112, 1), 0);
  EXPECT_EQ(blocks.num_more(kThreeGroups, 200, 1), 13 - 7) << "windows move on";
  EXPECT_EQ(blocks.num_more(kThreeGroups, 200, 17), 13 - 7 + 1 + 1);
  blocks.release(cache_);
  EXPECT_EQ(pool_.num_evictable(), 21);
  EXPECT_EQ(num_matched(tokens), 100);
}

TEST_F(GroupsTest, AMatchEndsWhereEachGroupHasWhatIsSeen) {
  const auto tokens = counting(0, 100);
  computed(tokens).release(cache_);
  EXPECT_EQ(num_matched(counting(0, 70)), 70) << "all of it is there";
  use_up(100 - 21 + 1);  // the first block that was passed goes: block 0 of the window of 16
  EXPECT_EQ(num_matched(tokens), 100);
  EXPECT_EQ(num_matched(counting(0, 16)), 0) << "its window lacks a token";
  EXPECT_EQ(num_matched(counting(0, 32)), 32);
  use_up(4);  // blocks 1 to 4
  EXPECT_EQ(num_matched(counting(0, 80)), 0) << "no end before has all";
  EXPECT_EQ(num_matched(tokens), 100);
  use_up(3);  // blocks 0 to 2 of the window of 40
  EXPECT_EQ(num_matched(tokens), 100);
  EXPECT_EQ(pool_.num_evictable(), 13);
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
  computed(counting(0, 104)).release(cache_);
  use_up(100 - 21 + 9);  // all that was passed: blocks 0 to 4 and 0 to 3 of the windows
  PrefixMatch match = cache_.match(0, counting(0, 110));
  EXPECT_EQ(match.num_tokens(), 104) << "65 to 103 are there";
  cache_.drop_partial(match);
  EXPECT_EQ(match.num_tokens(), 0) << "57 to 63 are not";
  EXPECT_EQ(match.partial, kNoBlock);
}

}  // namespace
}  // namespace lmtp::cache

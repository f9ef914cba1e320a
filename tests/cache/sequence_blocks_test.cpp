// What a sequence does with its blocks, over a pool of ten.
#include "lmtp/cache/sequence_blocks.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "counting.h"

namespace lmtp::cache {
namespace {

using testing::counting;

class SequenceBlocksTest : public ::testing::Test {
 protected:
  // The blocks of a text that was computed and indexed.
  SequenceBlocks computed(const std::vector<TokenId>& tokens, bool with_tail = true) {
    SequenceBlocks blocks;
    EXPECT_TRUE(blocks.extend(cache_, static_cast<int>(tokens.size())));
    blocks.index(cache_, 0, tokens, with_tail);
    return blocks;
  }
  static std::span<const TokenId> first(const std::vector<TokenId>& tokens, std::size_t count) {
    return std::span(tokens).first(count);
  }

  BlockPool pool_{11};
  PrefixCache cache_{pool_};
};

TEST_F(SequenceBlocksTest, TakesAllBlocksThatItAsksForOrNone) {
  SequenceBlocks blocks;
  EXPECT_TRUE(blocks.extend(cache_, 33));
  EXPECT_EQ(blocks.size(), 3);
  EXPECT_TRUE(blocks.extend(cache_, 48)) << "there are enough";
  EXPECT_EQ(blocks.size(), 3);
  EXPECT_FALSE(blocks.extend(cache_, 161));
  EXPECT_EQ(blocks.size(), 3);
  EXPECT_EQ(pool_.num_free(), 7);
  EXPECT_TRUE(blocks.extend(cache_, 160));
  blocks.release(cache_);
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(pool_.num_free(), 10) << "nothing was indexed";
}

TEST_F(SequenceBlocksTest, FullBlocksAreIndexedAsTheyAreComputed) {
  const auto tokens = counting(0, 40);
  SequenceBlocks blocks;
  ASSERT_TRUE(blocks.extend(cache_, 40));
  blocks.index(cache_, 0, first(tokens, 31), false);
  EXPECT_EQ(blocks.num_indexed(), 1);
  blocks.index(cache_, 0, first(tokens, 32), false);
  EXPECT_EQ(blocks.num_indexed(), 2);
  blocks.index(cache_, 0, first(tokens, 36), true);
  EXPECT_EQ(blocks.num_indexed(), 3) << "with its tail";
  EXPECT_EQ(cache_.num_tokens(blocks[2]), 4);
  blocks.index(cache_, 0, tokens, false);
  EXPECT_EQ(blocks.num_indexed(), 3);
  EXPECT_EQ(cache_.num_tokens(blocks[2]), 4) << "it grows when it is full, or at the end";
  blocks.release(cache_);
  EXPECT_EQ(pool_.num_evictable(), 3);
  cache_.check_invariants();
}

TEST_F(SequenceBlocksTest, ABlockOfTheSameTokensTakesThePlaceOfItsOwn) {
  const auto tokens = counting(0, 48);
  const SequenceBlocks known = computed(counting(0, 32));
  SequenceBlocks blocks;
  ASSERT_TRUE(blocks.extend(cache_, 48));
  EXPECT_EQ(blocks.num_alone(pool_), 3);
  const SequenceBlocks::Range replaced = blocks.index(cache_, 0, tokens, false);
  EXPECT_EQ(std::pair(replaced.begin, replaced.end), (std::pair<std::size_t, std::size_t>(0, 2)));
  EXPECT_EQ(blocks[0], known[0]);
  EXPECT_EQ(blocks[1], known[1]);
  EXPECT_EQ(blocks.num_indexed(), 3);
  EXPECT_EQ(blocks.num_alone(pool_), 1);
  EXPECT_EQ(pool_.num_free(), 7) << "its own two went back";
  SequenceBlocks other;
  ASSERT_TRUE(other.extend(cache_, 16));
  const SequenceBlocks::Range none = other.index(cache_, 1, first(tokens, 16), false);
  EXPECT_EQ(none.begin, none.end) << "in another namespace";
}

TEST_F(SequenceBlocksTest, AMatchIsSharedAndItsPartialBlockCopiedWhileAnotherWritesIt) {
  const auto tokens = counting(0, 60);
  const SequenceBlocks writes = computed(counting(0, 40));
  const PrefixMatch match = cache_.match(0, tokens);
  ASSERT_EQ(match.num_tokens(), 40);
  EXPECT_EQ(SequenceBlocks::num_to_take(cache_, match, 50), 2) << "the copy, and one more";
  SequenceBlocks blocks;
  const BlockMove copy = blocks.take(cache_, match);
  EXPECT_EQ(copy.from, writes[2]);
  EXPECT_EQ(copy.to, blocks[2]);
  EXPECT_EQ(blocks.num_indexed(), 2);
  EXPECT_EQ(pool_.num_refs(writes[2]), 2) << "pinned until it is copied";
  ASSERT_TRUE(blocks.extend(cache_, 50));
  EXPECT_EQ(pool_.num_free(), 10 - 3 - 2);
}

TEST_F(SequenceBlocksTest, AWholePartialBlockThatNobodyWritesIsTakenOver) {
  const auto tokens = counting(0, 60);
  computed(counting(0, 40)).release(cache_);
  const PrefixMatch match = cache_.match(0, tokens);
  EXPECT_EQ(SequenceBlocks::num_to_take(cache_, match, 50), 4) << "three that are evictable";
  SequenceBlocks blocks;
  EXPECT_EQ(blocks.take(cache_, match).from, kNoBlock);
  EXPECT_EQ(blocks.size(), 3);
  EXPECT_EQ(blocks.num_indexed(), 3);
  EXPECT_EQ(pool_.num_pinned(), 3);
  const PrefixMatch shorter = cache_.match(0, first(tokens, 36));
  ASSERT_EQ(shorter.num_partial, 4);
  blocks.release(cache_);
  EXPECT_EQ(SequenceBlocks::num_to_take(cache_, shorter, 48), 4) << "part of it has to be copied";
  EXPECT_EQ(blocks.take(cache_, shorter).from, shorter.partial);
}

TEST_F(SequenceBlocksTest, FindsWhatFollowedInAnotherText) {
  const SequenceBlocks other = computed(counting(0, 40));
  const auto tokens = counting(0, 35);
  const SequenceBlocks blocks = computed(tokens, false);
  const auto found = blocks.following(cache_, 0, tokens, 34);
  EXPECT_EQ(std::vector<TokenId>(found.begin(), found.end()), counting(35, 5));
  EXPECT_TRUE(SequenceBlocks().following(cache_, 1, first(tokens, 3), 0).empty());
}

}  // namespace
}  // namespace lmtp::cache

#include "lmtp/cache/block_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace lmtp::cache {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnceAndNeverTheNullBlock) {
  BlockPool pool(5);
  std::vector<bool> seen(5, false);
  for (int i = 0; i < 4; ++i) {
    const BlockId block = pool.take_free();
    ASSERT_GT(block, kNullBlock);
    EXPECT_FALSE(seen[static_cast<std::size_t>(block)]);
    seen[static_cast<std::size_t>(block)] = true;
  }
  EXPECT_EQ(pool.take_free(), kNoBlock);
  EXPECT_EQ(pool.num_pinned(), 4);
}

TEST(BlockPool, WhatWasUsedComesBeforeWhatNeverWas) {
  BlockPool pool(6);
  for (BlockId block = 1; block <= 4; ++block) EXPECT_EQ(pool.take_free(), block);
  pool.unpin(2, false);
  pool.unpin(3, true);
  pool.free_evictable(3);
  EXPECT_EQ(pool.take_free(), 3);
  EXPECT_EQ(pool.take_free(), 2);
  EXPECT_EQ(pool.take_free(), 5);
  EXPECT_EQ(pool.take_free(), kNoBlock);
}

TEST(BlockPool, KeptBlocksAreEvictedInOrderOfLastUse) {
  BlockPool pool(4);
  const BlockId a = pool.take_free();
  const BlockId b = pool.take_free();
  const BlockId c = pool.take_free();
  pool.unpin(a, true);
  pool.unpin(b, true);
  pool.unpin(c, false);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.oldest_evictable(), a);
  pool.pin(a);  // used again: now b is the oldest
  EXPECT_EQ(pool.oldest_evictable(), b);
  pool.unpin(a, true);
  pool.free_evictable(b);
  EXPECT_EQ(pool.oldest_evictable(), a);
  EXPECT_EQ(pool.num_free() + pool.num_evictable() + pool.num_pinned(), pool.num_total());
}

TEST(BlockPool, StubsAreApart) {
  BlockPool pool(3, 2);
  EXPECT_EQ(pool.num_total(), 2);
  EXPECT_EQ(pool.num_stubs(), 2);
  const BlockId block = pool.take_free();
  const BlockId stub = pool.take_free(true);
  EXPECT_FALSE(pool.is_stub(block));
  EXPECT_TRUE(pool.is_stub(stub));
  EXPECT_NE(pool.take_free(true), kNoBlock);
  EXPECT_EQ(pool.take_free(true), kNoBlock) << "though a block is free";
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_pinned(), 1);
  EXPECT_EQ(pool.stubs().pinned, 2);
  pool.unpin(stub, true);
  EXPECT_EQ(pool.num_evictable(), 0);
  EXPECT_EQ(pool.stubs().evictable, 1);
  EXPECT_EQ(pool.oldest_evictable(), kNoBlock);
  EXPECT_EQ(pool.oldest_evictable(true), stub);
  pool.free_evictable(stub);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.take_free(true), stub);
}

TEST(BlockPool, CountsReferences) {
  BlockPool pool(2);
  const BlockId a = pool.take_free();
  pool.pin(a);
  pool.unpin(a, true);
  EXPECT_EQ(pool.num_refs(a), 1);
  EXPECT_EQ(pool.num_pinned(), 1);
  pool.unpin(a, true);
  EXPECT_TRUE(pool.is_evictable(a));
}

TEST(BlockPoolDeath, UnpinningAFreeBlockIsOurBug) {
  BlockPool pool(2);
  const BlockId a = pool.take_free();
  pool.unpin(a, false);
  EXPECT_DEATH(pool.unpin(a, false), "check failed");
}

TEST(BlockPoolTest, WhatWasPassedIsTakenBeforeAllOthers) {
  BlockPool pool(6);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(pool.take_free());
  pool.unpin(blocks[0], true);
  pool.unpin_passed(blocks[1], true);
  pool.unpin_passed(blocks[2], true);
  pool.unpin_passed(blocks[3], false);
  EXPECT_EQ(pool.num_evictable(), 3);
  EXPECT_TRUE(pool.is_free(blocks[3])) << "it is not kept";
  EXPECT_EQ(pool.oldest_evictable(), blocks[1]);
  pool.pin(blocks[1]);  // it is used again, and given back as others are
  pool.unpin(blocks[1], true);
  EXPECT_EQ(pool.oldest_evictable(), blocks[2]);
  pool.free_evictable(blocks[2]);
  EXPECT_EQ(pool.oldest_evictable(), blocks[0]);
  pool.free_evictable(blocks[0]);
  EXPECT_EQ(pool.oldest_evictable(), blocks[1]);
}

}  // namespace
}  // namespace lmtp::cache

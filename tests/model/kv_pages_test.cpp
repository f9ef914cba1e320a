// The thread that takes the KV cache's pages ahead of need: which, and beside whom.
#include "lmtp/model/kv_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "eventually.h"
#include "kernels/backend.h"

namespace lmtp {
namespace {

using model::KvCache;
using model::KvPages;
using model::KvSpec;

constexpr int kNumBlocks = 1024;
constexpr int kNumLayers = 2;
const std::vector<KvSpec> kSpecs(kNumLayers, {.num_heads = 8, .head_dim = 64});  // 128 KiB a block
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

class KvPagesTest : public ::testing::Test {
 protected:
  std::int64_t block_bytes() const { return cache_.num_bytes() / kNumBlocks; }

  static void wait_for(const KvPages& pages, int num_ready) {
    ASSERT_TRUE(testing::eventually([&] { return pages.num_ready() >= num_ready; }))
        << pages.num_ready();
  }

  // Of a layer's keys, in blocks [first, end): bytes that are in memory.
  std::int64_t resident_bytes(int layer, BlockId first, BlockId end) const {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    auto* begin = reinterpret_cast<char*>(cache_.layer(layer).key_units(first));
    const std::int64_t size = reinterpret_cast<char*>(cache_.layer(layer).key_units(end)) - begin;
    std::vector<unsigned char> there(static_cast<std::size_t>(size / page));
    EXPECT_EQ(mincore(begin, static_cast<std::size_t>(size), there.data()), 0);
    return page * std::ranges::count_if(there, [](unsigned char is) { return (is & 1) != 0; });
  }

  std::int64_t key_bytes(int num_blocks) const { return num_blocks * block_bytes() / 4; }

  kernels::WorkerPool pool_{1};
  kernels::Stream stream_{kernels::cpu_backend(), pool_};
  KvCache cache_{kSpecs, kNumBlocks, stream_, kernels::ElementType::kF32};
};

TEST_F(KvPagesTest, AQuarterOfWhatIsUsedIsAheadWithinLimits) {
  KvPages pages(cache_);
  const auto least = static_cast<int>(KvPages::kAheadBytesMin / block_bytes());
  EXPECT_EQ(pages.num_ahead(1), least);
  EXPECT_EQ(pages.num_ahead(6 * least), 6 * least / 4);
  EXPECT_EQ(pages.num_ahead(kNumBlocks - 5), 5);
}

TEST_F(KvPagesTest, PagesOfTheNextBlocksComeAndNoMore) {
  KvPages pages(cache_);
  const int first = 1 + pages.num_ahead(1);
  wait_for(pages, first);
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(resident_bytes(layer, 1, first), key_bytes(first - 1));
    EXPECT_LE(resident_bytes(layer, 0, kNumBlocks - 1), key_bytes(first) + 2 * kHugePage);
  }
  const BlockId used = first;  // what no step has written comes with the write
  pages.use(used);
  const int next = used + 1 + pages.num_ahead(used + 1);
  wait_for(pages, next);
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(resident_bytes(layer, used + 1, next), key_bytes(next - used - 1));
    EXPECT_LE(resident_bytes(layer, 0, kNumBlocks - 1), key_bytes(next) + 2 * kHugePage);
  }
}

TEST_F(KvPagesTest, ABlockMoreWakesNobody) {
  KvPages pages(cache_);
  wait_for(pages, 1 + pages.num_ahead(1));
  const int before = pages.num_ready();
  pages.use(1);
  pages.use(2);
  pages.use(kNumBlocks);  // an id without memory
  pages.use(kNumBlocks + 1000);
  EXPECT_EQ(pages.num_ready(), before);
  // The last block: all others are used, and the thread is done.
  pages.use(kNumBlocks - 1);
  wait_for(pages, kNumBlocks);
}

TEST_F(KvPagesTest, WhatIsWrittenMeanwhileStays) {
  KvPages pages(cache_);
  const std::int64_t size = cache_.layer(0).block_size();
  const auto number = [](BlockId block, std::int64_t i) {
    return static_cast<float>(block * 31 + i % 1009);
  };
  for (BlockId block = 1; block < kNumBlocks; ++block) {
    pages.use(block);
    for (const int layer : {0, 1}) {
      float* keys = cache_.layer(layer).key_units(block);
      // A few of each page, which another one's writes may be the first to touch.
      for (std::int64_t i = 0; i < size; i += 101) keys[i] = number(block, i);
    }
  }
  wait_for(pages, kNumBlocks);
  for (BlockId block = 1; block < kNumBlocks; ++block) {
    for (const int layer : {0, 1}) {
      const float* keys = cache_.layer(layer).key_units(block);
      for (std::int64_t i = 0; i < size; i += 101) ASSERT_EQ(keys[i], number(block, i)) << block;
    }
  }
}

TEST_F(KvPagesTest, ItEndsWhileItWorks) {
  for (int i = 0; i < 20; ++i) {
    KvPages pages(cache_);
    pages.use(i * 10);
  }
  const KvCache small(kSpecs, 2, stream_, kernels::ElementType::kBF16);
  const KvPages pages(small);
  wait_for(pages, 2);
}

}  // namespace
}  // namespace lmtp

// The cache of layers whose keys and values are of different sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/e4m3.h"
#include "lmtp/model/kv_cache.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using model::KvCache;
using model::KvSpec;

constexpr int kNumBlocks = 5;

// Two heads of 8 dimensions, one of 40, which are padded to 48, and a layer as the first.
const std::vector<KvSpec> kSpecs = {{.num_heads = 2, .head_dim = 8, .window = 4},
                                    {.num_heads = 1, .head_dim = 40},
                                    {.num_heads = 2, .head_dim = 8}};

class KvCacheTest : public ::testing::TestWithParam<ElementType> {
 protected:
  KvCacheTest() : cache_(kSpecs, kNumBlocks, stream_, GetParam()) {}

  // A token's keys or values in a layer, all of them different in types of 16 bits and more.
  static std::vector<float> numbers(std::size_t layer, int slot, float sign) {
    std::vector<float> values(static_cast<std::size_t>(kSpecs[layer].width()));
    std::iota(values.begin(), values.end(), static_cast<float>(slot % 16));
    for (float& value : values) {
      value = sign * (value + 100.0F * static_cast<float>(layer));
      if (GetParam() == ElementType::kE4M3) {
        value = kernels::widen_e4m3(kernels::round_to_e4m3(value));
      }
    }
    return values;
  }

  void store(std::size_t layer, std::int32_t slot) {
    std::vector<float> keys = numbers(layer, slot, 1.0F);
    std::vector<float> values = numbers(layer, slot, -1.0F);
    const std::int64_t width = kSpecs[layer].width();
    kernels::kv_store(stream_,
                      {.keys = kernels::make_matrix<const float>(keys.data(), 1, width),
                       .values = kernels::make_matrix<const float>(values.data(), 1, width),
                       .slots = &slot,
                       .cache = cache_.layer(static_cast<int>(layer))});
  }

  // What attention over the one token at the start of `block` gives: that token's value.
  std::vector<float> read_first(std::size_t layer, std::int32_t block) {
    const std::int64_t width = kSpecs[layer].width();
    std::vector<float> queries(static_cast<std::size_t>(width), 0.0F);
    std::vector<float> result(queries.size());
    const std::int32_t cu_seqlens[] = {0, 1};
    const std::int32_t first_position = 0;
    const std::int32_t block_offsets[] = {0, 1};
    kernels::paged_attention(
        stream_, {.queries = kernels::make_matrix<const float>(queries.data(), 1, width),
                  .cache = cache_.layer(static_cast<int>(layer)),
                  .num_heads = kSpecs[layer].num_heads,
                  .num_sequences = 1,
                  .chunk_max = 1,
                  .context_max = 1,
                  .num_table_blocks = 1,
                  .cu_seqlens = cu_seqlens,
                  .first_positions = &first_position,
                  .block_offsets = block_offsets,
                  .block_tables = &block,
                  .table_starts = block_offsets,
                  .y = kernels::make_matrix(result.data(), 1, width)});
    return result;
  }

  kernels::WorkerPool pool_{1};
  kernels::Stream stream_{kernels::cpu_backend(), pool_};
  KvCache cache_;
};

INSTANTIATE_TEST_SUITE_P(Types, KvCacheTest,
                         ::testing::Values(ElementType::kF32, ElementType::kBF16, ElementType::kF16,
                                           ElementType::kE4M3));

TEST_P(KvCacheTest, EachLayerTakesWhatItsKeysAndValuesTake) {
  const std::int64_t elements = 2 * kBlockSize * (2 * 16 + 48 + 2 * 16);  // heads of 8 as of 16
  EXPECT_EQ(model::kv_block_bytes(kSpecs, GetParam()),
            elements * kernels::element_size(GetParam()));
  EXPECT_EQ(cache_.num_bytes(), kNumBlocks * model::kv_block_bytes(kSpecs, GetParam()));
  for (std::size_t layer = 0; layer < kSpecs.size(); ++layer) {
    const kernels::KvLayer& at = cache_.layer(static_cast<int>(layer));
    EXPECT_EQ(at.num_kv_heads, kSpecs[layer].num_heads);
    EXPECT_EQ(at.head_dim, kSpecs[layer].head_dim);
    EXPECT_EQ(at.num_blocks, kNumBlocks);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at.keys) % 64, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at.values) % 64, 0U);
  }
}

TEST_P(KvCacheTest, LayersDoNotOverlap) {
  for (std::size_t layer = 0; layer < kSpecs.size(); ++layer) {
    for (std::int32_t slot = 0; slot < kNumBlocks * kBlockSize; ++slot) store(layer, slot);
  }
  for (std::size_t layer = 0; layer < kSpecs.size(); ++layer) {
    for (std::int32_t block = 0; block < kNumBlocks; ++block) {
      EXPECT_EQ(read_first(layer, block), numbers(layer, 0, -1.0F)) << layer << ' ' << block;
    }
  }
}

TEST_P(KvCacheTest, BlocksAreCopiedInEveryLayer) {
  for (std::size_t layer = 0; layer < kSpecs.size(); ++layer) {
    // Padding is not written.
    const kernels::KvLayer& at = cache_.layer(static_cast<int>(layer));
    const auto num_bytes =
        static_cast<std::size_t>(kNumBlocks * at.block_size() * kernels::element_size(at.type));
    std::memset(at.keys, 0, num_bytes);
    std::memset(at.values, 0, num_bytes);
    for (std::int32_t slot = 0; slot < kBlockSize; ++slot) {
      store(layer, kBlockSize + slot);                 // block 1, which is copied
      store(layer, 2 * kBlockSize + (slot * 7) % 16);  // block 2, which is overwritten
    }
  }
  const kernels::KvCopy copies[] = {{.from = 1, .to = 3, .num_tokens = kBlockSize},
                                    {.from = 3, .to = 4, .num_tokens = 1}};
  cache_.copy_blocks(stream_, copies, 2);
  for (std::size_t layer = 0; layer < kSpecs.size(); ++layer) {
    const kernels::KvLayer& at = cache_.layer(static_cast<int>(layer));
    const auto block_bytes =
        static_cast<std::size_t>(at.block_size() * kernels::element_size(at.type));
    EXPECT_EQ(std::memcmp(at.key_units(3), at.key_units(1), block_bytes), 0) << layer;
    EXPECT_EQ(std::memcmp(at.value_units(3), at.value_units(1), block_bytes), 0) << layer;
    EXPECT_EQ(read_first(layer, 4), numbers(layer, 0, -1.0F)) << layer;
  }
}

TEST(KvSpecsTest, TheyAreThoseOfTheConfigWithTheWindowOfEachLayer) {
  const auto config =
      model::read_model_config(testing::source_dir() + "/tests/goldens/families/gemma2");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::vector<KvSpec> specs = model::kv_specs(*config);
  ASSERT_EQ(specs.size(), 3U);
  for (const KvSpec& spec : specs) {
    EXPECT_EQ(spec.num_heads, 2);
    EXPECT_EQ(spec.head_dim, config->head_dim);
  }
  EXPECT_GT(specs[0].window, 0);
  EXPECT_EQ(specs[1].window, 0);
  EXPECT_EQ(specs[2].window, specs[0].window);
  const auto half = model::rank_config(*config, 2);
  ASSERT_TRUE(half.ok()) << half.error().message;
  EXPECT_EQ(model::kv_specs(*half).front().num_heads, 1);
  EXPECT_EQ(2 * model::kv_block_bytes(model::kv_specs(*half), ElementType::kF32),
            model::kv_block_bytes(specs, ElementType::kF32));
}

// As many layers of each number as `counts` has, with these windows, in turn.
std::vector<KvSpec> layers_of(const std::vector<std::pair<int, int>>& counts) {
  std::vector<KvSpec> specs;
  for (const auto& [count, window] : counts) {
    specs.insert(specs.end(), static_cast<std::size_t>(count),
                 {.num_heads = 2, .head_dim = 8, .window = window});
  }
  return specs;
}

std::vector<std::int32_t> windows_in(const KvLayout& layout) {
  return {layout.windows.begin(), layout.windows.begin() + layout.num_groups};
}

TEST(KvGroupsTest, LayersOfOneWindowAreInGroupsOfAsManyAsSeeAll) {
  constexpr int kContextLength = 8192;
  // Gemma 3 1B: 4 that see all, and 22 others.
  const model::KvGroups gemma = kv_groups(layers_of({{22, 512}, {4, 0}}), kContextLength);
  EXPECT_EQ(gemma.slots.size(), 4U);
  EXPECT_EQ(windows_in(gemma.layout), (std::vector<std::int32_t>{0, 512, 512, 512, 512, 512, 512}));
  std::set<std::pair<int, int>> places;
  for (int layer = 0; layer < gemma.num_layers(); ++layer) {
    const auto [group, slot] = gemma.layers[static_cast<std::size_t>(layer)];
    EXPECT_EQ(group == 0, layer >= 22) << layer;
    EXPECT_TRUE(slot >= 0 && slot < 4 && places.insert({group, slot}).second) << layer;
  }
  // Two windows, and one that is no shorter than the context.
  EXPECT_EQ(windows_in(kv_groups(layers_of({{2, 100}, {1, 9000}, {1, 0}, {2, 40}}), 8192).layout),
            (std::vector<std::int32_t>{0, 100, 40}));
  // One layer of 31: at most eight groups.
  const model::KvGroups few = kv_groups(layers_of({{30, 64}, {1, 0}}), kContextLength);
  EXPECT_EQ(few.layout.num_groups, KvLayout::kGroupsMax - 1);
  EXPECT_EQ(few.slots.size(), 5U);
}

TEST(KvGroupsTest, OneGroupWhereOthersWouldGainLittle) {
  for (const auto& specs : {layers_of({{6, 0}}), layers_of({{6, 8192}}),
                            layers_of({{4, 0}, {2, 8}}), layers_of({{3, 8192}, {3, 0}}), kSpecs}) {
    const model::KvGroups groups = kv_groups(specs, 8192);
    EXPECT_EQ(groups.layout, KvLayout());
    EXPECT_EQ(groups.slots.size(), specs.size());
  }
}

TEST(KvGroupsTest, WhereNoLayerSeesAllTheFirstGroupHasNone) {
  struct Case {
    std::vector<std::pair<int, int>> layers;
    std::vector<std::int32_t> windows;
    std::size_t num_slots;
  };
  for (const Case& one :
       {Case{{{32, 4096}}, {0, 4096}, 32},  // Mistral 7B 0.1
        Case{{{2, 100}, {2, 40}}, {0, 100, 40}, 2},
        Case{{{3, 100}, {2, 40}}, {0, 100}, 5},  // fewer see less
        Case{{{1, 100}, {14, 40}}, {0, 100, 40, 40, 40, 40, 40}, 3},
        Case{{{1, 8}, {1, 7}, {1, 6}, {1, 5}, {1, 4}, {1, 3}, {1, 2}, {1, 1}}, {0, 8}, 8}}) {
    const model::KvGroups groups = kv_groups(layers_of(one.layers), 8192);
    EXPECT_TRUE(groups.layout.has_stubs);
    EXPECT_EQ(windows_in(groups.layout), one.windows);
    EXPECT_EQ(groups.layout.num_with_layers(), groups.layout.num_groups - 1);
    EXPECT_EQ(groups.slots.size(), one.num_slots);
    for (const auto& place : groups.layers) EXPECT_GT(place.group, 0);
  }
}

TEST(KvGroupsTest, LayersOfSeveralGroupsHaveOneMemoryAndBlocksOfTheirOwn) {
  kernels::WorkerPool pool(1);
  kernels::Stream stream(kernels::cpu_backend(), pool);
  const model::KvGroups groups = kv_groups(layers_of({{4, 16}, {2, 0}}), 8192);
  const KvCache cache(groups, kNumBlocks, stream, ElementType::kF32);
  EXPECT_EQ(cache.num_groups(), 3);
  EXPECT_EQ(cache.num_bytes(), kNumBlocks * model::kv_block_bytes(groups.slots, ElementType::kF32));
  EXPECT_EQ(cache.layer(0).keys, cache.layer(4).keys);
  EXPECT_NE(cache.group(0), cache.group(4));
  EXPECT_NE(cache.layer(0).keys, cache.layer(1).keys);
  EXPECT_EQ(cache.group(0), cache.group(1));
}

TEST(KvGroupsTest, PiecesOfABlockLieWithinIt) {
  kernels::WorkerPool pool(1);
  kernels::Stream stream(kernels::cpu_backend(), pool);
  const KvCache cache(kSpecs, kNumBlocks, stream, ElementType::kF32);
  std::vector<void*> pieces;
  cache.append_pieces(2, pieces);
  ASSERT_EQ(pieces.size(), 2 * kSpecs.size());
  std::int64_t least = INT64_MAX;
  for (std::size_t i = 0; i < kSpecs.size(); ++i) {
    const kernels::KvLayer& layer = cache.layer(static_cast<int>(i));
    const std::int64_t num_bytes = layer.block_size() * kernels::element_size(layer.type);
    least = std::min(least, num_bytes);
    EXPECT_EQ(pieces[2 * i], static_cast<std::byte*>(layer.keys) + 2 * num_bytes);
    EXPECT_EQ(pieces[2 * i + 1], static_cast<std::byte*>(layer.values) + 2 * num_bytes);
  }
  EXPECT_EQ(cache.piece_bytes(), least);
}

TEST(KvLayoutTest, WhatTheNextTokenSeesIsNeeded) {
  const KvLayout layout{.num_groups = 4, .windows = {0, 1, 16, 20}, .num_written_max = 8};
  // By hand: the first block with a token that the one at `position` sees.
  for (int position = 0; position < 200; ++position) {
    for (int group = 0; group < layout.num_groups; ++group) {
      const int window = layout.window(group);
      int seen = 0;
      while (window > 0 && seen <= position - window) ++seen;
      EXPECT_EQ(layout.first_block(group, position), seen / kBlockSize) << position << group;
    }
  }
  EXPECT_EQ(layout.num_held_max(33), 3 + 3 + 3 + 3);
  EXPECT_EQ(layout.num_held_max(16 * 100), 100 + 4 + 5 + 5);
  EXPECT_EQ(layout.num_stubs(1000, 64, 4096), 0);
  KvLayout no_full = layout;
  no_full.has_stubs = true;
  EXPECT_EQ(no_full.num_held_max(16 * 100), 4 + 5 + 5) << "stubs take no memory";
  EXPECT_EQ(no_full.num_stubs(1000, 64, 4096), 1000 + 64 * 256);
  EXPECT_EQ(no_full.num_stubs(100, 64, 4096), 100 + (100 / 2 + 1) * 256) << "of 2 in a window";
  // By hand, of all places where what is written may begin.
  for (const int window : {1, 2, 16, 17, 18, 33, 100}) {
    const KvLayout one{.num_groups = 2, .windows = {0, window}, .num_written_max = 8};
    for (const int num_written : {1, 2, 15, 16, 17, 40}) {
      int most = 0;
      for (int first = 200; first < 216; ++first) {
        const int kept = first - KvLayout::kKeptBefore + 1 - window;
        most = std::max(most, (first + num_written - 1) / kBlockSize - kept / kBlockSize + 1);
      }
      EXPECT_EQ(one.num_held_max(1, 1000, num_written), most) << window << ' ' << num_written;
    }
  }
}

}  // namespace
}  // namespace lmtp

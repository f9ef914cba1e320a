// The cache of layers whose keys and values are of different sizes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
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

}  // namespace
}  // namespace lmtp

// The CUDA kernels of rows, on the emulation of a device: rows_cases.cpp, and what a device has
// beside the processor.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/backend.h"
#include "cuda_emulation/emulator.h"
#include "kernel_support.h"

namespace lmtp {

std::vector<const kernels::Backend*> testing::backends_under_test() {
  return {&kernels::cuda::device_backend()};
}

namespace {

using kernels::Memory;
using kernels::Stream;
using kernels::WeightType;

const kernels::Backend& device() { return kernels::cuda::device_backend(); }

TEST(CudaRowsTest, EmbeddingsAreTheRoundedElements) {
  constexpr std::int64_t kVocab = 37;
  constexpr std::int64_t kWidth = 21;
  auto table = testing::random_floats(kVocab * kWidth, 8);
  for (float& value : table) {
    value = static_cast<float>(static_cast<int>(value * 16.0F)) / 16.0F;  // exact in every type
  }
  const std::vector<std::int32_t> ids = {0, 36, 15, 16, 17, 5, 5};
  kernels::WorkerPool pool(1);
  Stream stream(device(), pool);
  for (const WeightType type : {WeightType::kF32, WeightType::kBF16, WeightType::kF16}) {
    for (const auto order :
         {kernels::WeightOrder::kOutputsByInputs, kernels::WeightOrder::kInputsByOutputs}) {
      const Memory packed =
          Memory::allocate(device(), kernels::packed_bytes(device(), type, kVocab, kWidth));
      kernels::pack_on_device(stream,
                              {.data = table.data(), .order = order, .n = kVocab, .k = kWidth},
                              {.panels = packed.data(), .type = type});
      std::vector<float> y(ids.size() * kWidth);
      kernels::embedding(stream, {.ids = ids.data(),
                                  .table = {packed.data(), kVocab, kWidth, type},
                                  .y = testing::view<float>(y, kWidth)});
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (std::int64_t c = 0; c < kWidth; ++c) {
          const std::int64_t at = order == kernels::WeightOrder::kOutputsByInputs
                                      ? ids[i] * kWidth + c
                                      : c * kVocab + ids[i];
          ASSERT_EQ(y[i * kWidth + static_cast<std::size_t>(c)],
                    table[static_cast<std::size_t>(at)]);
        }
      }
    }
  }
}

TEST(CudaRowsTest, CopiesOfBlocksRunInOrder) {
  kernels::KvLayer cache{
      .num_blocks = 5, .num_kv_heads = 3, .head_dim = 20, .type = kernels::ElementType::kBF16};
  std::vector<std::uint16_t> keys(static_cast<std::size_t>(5 * cache.block_size()));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = static_cast<std::uint16_t>(i * 7);
  }
  const Memory memory = Memory::allocate(device(), 2 * keys.size() * sizeof(keys[0]));
  auto* device_keys = static_cast<std::uint16_t*>(memory.data());
  std::memcpy(device_keys, keys.data(), keys.size() * sizeof(keys[0]));
  std::memcpy(device_keys + keys.size(), keys.data(), keys.size() * sizeof(keys[0]));
  cache.keys = device_keys;
  cache.values = device_keys + keys.size();
  // The second takes what the first brought; the third overwrites where that came from.
  const std::vector<kernels::KvCopy> copies = {{0, 2, 16}, {2, 3, 16}, {4, 0, 16}};
  const std::vector<std::int64_t> expected = {4, 1, 0, 0, 4};
  for (const unsigned seed : {0U, 1U, 2U}) {
    cuda_emulation::set_order(seed);
    if (seed != 0) {
      std::memcpy(device_keys, keys.data(), keys.size() * sizeof(keys[0]));
      std::memcpy(device_keys + keys.size(), keys.data(), keys.size() * sizeof(keys[0]));
    }
    kernels::WorkerPool pool(1);
    Stream stream(device(), pool);
    kernels::kv_copy(stream, cache, copies.data(), static_cast<std::int64_t>(copies.size()));
    for (std::int64_t block = 0; block < cache.num_blocks; ++block) {
      for (std::int64_t i = 0; i < cache.block_size(); ++i) {
        const auto at = static_cast<std::size_t>(block * cache.block_size() + i);
        const auto from = static_cast<std::size_t>(
            expected[static_cast<std::size_t>(block)] * cache.block_size() + i);
        ASSERT_EQ(device_keys[at], keys[from]) << block;
        ASSERT_EQ(device_keys[keys.size() + at], keys[from]) << block;
      }
    }
  }
  cuda_emulation::set_order(0);
}

}  // namespace
}  // namespace lmtp

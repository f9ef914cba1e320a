// The CUDA kernels of rows: rows_cases.cpp, and what a device has beside the processor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "device_under_test.h"
#include "kernel_support.h"

namespace lmtp {

std::vector<const kernels::Backend*> testing::backends_under_test() {
  return {&device_under_test()};
}

namespace {

using kernels::Memory;
using kernels::Stream;
using kernels::WeightType;
using testing::device_under_test;

TEST(CudaRowsTest, EmbeddingsAreTheRoundedElements) {
  constexpr std::int64_t kVocab = 37;
  constexpr std::int64_t kWidth = 21;
  auto table = testing::random_floats(kVocab * kWidth, 8);
  for (float& value : table) {
    value = static_cast<float>(static_cast<int>(value * 16.0F)) / 16.0F;  // exact in every type
  }
  const std::vector<std::int32_t> ids = {0, 36, 15, 16, 17, 5, 5};
  kernels::WorkerPool pool(1);
  Stream stream(device_under_test(), pool);
  for (const WeightType type : {WeightType::kF32, WeightType::kBF16, WeightType::kF16}) {
    for (const auto order :
         {kernels::WeightOrder::kOutputsByInputs, kernels::WeightOrder::kInputsByOutputs}) {
      const Memory packed = Memory::allocate(
          device_under_test(), kernels::packed_bytes(device_under_test(), type, kVocab, kWidth));
      kernels::pack(stream, {.data = table.data(), .order = order, .n = kVocab, .k = kWidth},
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
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::uint16_t>(i * 7);
  const std::size_t num_bytes = keys.size() * sizeof(keys[0]);
  const Memory memory = Memory::allocate(device_under_test(), 2 * num_bytes);
  cache.keys = memory.data();
  cache.values = static_cast<std::byte*>(memory.data()) + num_bytes;
  // The second copies what the first wrote; the third overwrites the second's source.
  const std::vector<kernels::KvCopy> copies = {{0, 2, 16}, {2, 3, 16}, {4, 0, 16}};
  const std::vector<std::int64_t> expected = {4, 1, 0, 0, 4};
  for (const unsigned seed : {0U, 1U, 2U}) {
    testing::set_thread_order(seed);
    for (void* to : {cache.keys, cache.values}) testing::copy_to_device(to, keys.data(), num_bytes);
    kernels::WorkerPool pool(1);
    Stream stream(device_under_test(), pool);
    kernels::kv_copy(stream, cache,
                     {.copies = copies.data(), .count = static_cast<std::int64_t>(copies.size())});
    stream.synchronize();
    for (const void* from : {cache.keys, cache.values}) {
      std::vector<std::uint16_t> copied(keys.size());
      testing::copy_to_host(copied.data(), from, num_bytes);
      for (std::size_t i = 0; i < copied.size(); ++i) {
        const auto block = static_cast<std::size_t>(cache.block_size());
        const auto source = static_cast<std::size_t>(expected[i / block]) * block + i % block;
        ASSERT_EQ(copied[i], keys[source]) << "element " << i;
      }
    }
  }
  testing::set_thread_order(0);
}

// Blocks of the host are numbered behind those of the device: one goes there, another comes into
// its place, and what went comes back to a third one.
TEST(CudaRowsTest, BlocksGoToTheHostAndComeBack) {
  kernels::KvLayer cache{
      .num_blocks = 4, .num_kv_heads = 2, .head_dim = 24, .type = kernels::ElementType::kBF16};
  const auto block = static_cast<std::size_t>(cache.block_size());
  std::vector<std::uint16_t> own(4 * block);
  std::vector<std::uint16_t> kept(3 * block);
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = static_cast<std::uint16_t>(i * 5 + 1);
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<std::uint16_t>(i * 3 + 40001);
  const std::size_t num_bytes = own.size() * sizeof(own[0]);
  const Memory memory = Memory::allocate(device_under_test(), 2 * num_bytes);
  cache.keys = memory.data();
  cache.values = static_cast<std::byte*>(memory.data()) + num_bytes;
  const std::size_t kept_bytes = kept.size() * sizeof(kept[0]);
  const Memory host = Memory::allocate_pinned(device_under_test(), 2 * kept_bytes);
  auto* host_values = static_cast<std::byte*>(host.data()) + kept_bytes;
  for (void* to : {host.data(), static_cast<void*>(host_values)}) {
    std::memcpy(to, kept.data(), kept_bytes);
  }
  for (void* to : {cache.keys, cache.values}) testing::copy_to_device(to, own.data(), num_bytes);
  const std::vector<kernels::KvCopy> copies = {{1, 4, 16}, {6, 1, 16}, {4, 3, 16}, {2, 6, 16}};
  kernels::WorkerPool pool(1);
  Stream stream(device_under_test(), pool);
  kernels::kv_copy(stream, cache,
                   {.copies = copies.data(),
                    .count = static_cast<std::int64_t>(copies.size()),
                    .host_keys = host.data(),
                    .host_values = host_values,
                    .num_host_blocks = 3});
  stream.synchronize();
  const auto is_block = [&](const std::uint16_t* found, const std::vector<std::uint16_t>& of,
                            std::size_t number) {
    return std::equal(found, found + block, of.data() + number * block);
  };
  for (const bool is_keys : {true, false}) {
    std::vector<std::uint16_t> copied(own.size());
    testing::copy_to_host(copied.data(), is_keys ? cache.keys : cache.values, num_bytes);
    EXPECT_TRUE(is_block(copied.data() + block, kept, 2));
    EXPECT_TRUE(is_block(copied.data() + 2 * block, own, 2));
    EXPECT_TRUE(is_block(copied.data() + 3 * block, own, 1));
    const auto* there =
        static_cast<const std::uint16_t*>(is_keys ? host.data() : static_cast<void*>(host_values));
    EXPECT_TRUE(is_block(there, own, 1));
    EXPECT_TRUE(is_block(there + block, kept, 1));
    EXPECT_TRUE(is_block(there + 2 * block, own, 2));
  }
}

}  // namespace
}  // namespace lmtp

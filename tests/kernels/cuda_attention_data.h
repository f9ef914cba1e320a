// Attention on the device under test, and what it is to be.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "cuda/attention.h"
#include "cuda/kv_store.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "kernels/e4m3.h"
#include "kernels/memory.h"
#include "narrow_floats.h"

namespace lmtp::testing {

namespace cuda = kernels::cuda;
using cuda::AttentionKernel;
using kernels::ElementType;
using kernels::KvLayer;

struct AttentionShape {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int window = 0;
  float soft_cap = 0.0F;
  bool has_sinks = false;
};

inline float rounded_kv(ElementType type, float value) {
  return type == ElementType::kBF16   ? widen_bf16(round_to_bf16(value))
         : type == ElementType::kF16  ? widen_f16(round_to_f16(value))
         : type == ElementType::kE4M3 ? kernels::widen_e4m3(kernels::round_to_e4m3(value))
                                      : value;
}

// Behind the scratch memory, to see that nothing is written there.
inline constexpr std::size_t kGuardWords = 1 << 14;

// The tokens [first, first + count) of a sequence go through in one step.
struct AttentionPart {
  int sequence;
  int first;
  int count;
};

// A step's arrays of indices, blocks of sequences in no order.
struct AttentionStep {
  AttentionStep(const std::vector<AttentionPart>& parts, int num_blocks, int blocks_each) {
    for (const AttentionPart& part : parts) {
      const auto block = [&](int index) {
        return 1 + (index * 7 + 3) % blocks_each * ((num_blocks - 1) / blocks_each) + part.sequence;
      };
      for (int position = part.first; position < part.first + part.count; ++position) {
        slots.push_back(block(position / kBlockSize) * kBlockSize + position % kBlockSize);
      }
      cu_seqlens.push_back(static_cast<std::int32_t>(slots.size()));
      first_positions.push_back(part.first);
      for (int index = 0; index * kBlockSize < part.first + part.count; ++index) {
        tables.push_back(block(index));
      }
      block_offsets.push_back(static_cast<std::int32_t>(tables.size()));
      chunk_max = std::max(chunk_max, part.count);
      context_max = std::max(context_max, part.first + part.count);
    }
    table_starts = spread_tables(parts.front().first, block_offsets, tables);
  }

  std::vector<std::int32_t> cu_seqlens = {0};
  std::vector<std::int32_t> first_positions;
  std::vector<std::int32_t> block_offsets = {0};
  std::vector<std::int32_t> tables;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> table_starts;
  int chunk_max = 0;
  int context_max = 0;
};

// Steps over sequences whose queries, keys and values are functions of (sequence, position),
// outputs kept by position.
class Attention {
 public:
  // Unwritten blocks hold NaN, so that reading them shows.
  Attention(const AttentionShape& shape, ElementType type, int num_sequences, int length)
      : shape_(shape),
        type_(type),
        length_(length),
        blocks_each_((length + kBlockSize - 1) / kBlockSize),
        queries_(make(num_sequences, shape.num_heads, 11)),
        keys_(make(num_sequences, shape.num_kv_heads, 12)),
        values_(make(num_sequences, shape.num_kv_heads, 13)),
        output_(queries_.size(), NAN) {
    for (int head = 0; shape.has_sinks && head < shape.num_heads; ++head) {
      sinks_.push_back(1.5F * static_cast<float>(head) - 2.0F);
    }
    EXPECT_NE(blocks_each_ % 7, 0) << "AttentionStep would give a sequence a block twice";
    layer_.num_blocks = 1 + num_sequences * blocks_each_;
    layer_.num_kv_heads = shape.num_kv_heads;
    layer_.head_dim = shape.head_dim;
    layer_.type = type;
    const auto elements = static_cast<std::size_t>(layer_.num_blocks * layer_.block_size());
    cached_keys_.resize(elements * sizeof(float) / sizeof(cuda::Words4));
    cached_values_.resize(cached_keys_.size());
    spoil(0, layer_.num_blocks);
    layer_.keys = cached_keys_.data();
    layer_.values = cached_values_.data();
  }

  void spoil(int first_block, int end_block) {
    const auto bytes = static_cast<std::size_t>(layer_.block_size()) *
                       static_cast<std::size_t>(kernels::element_size(type_));
    for (auto* cached : {&cached_keys_, &cached_values_}) {
      auto* from = reinterpret_cast<std::byte*>(cached->data());
      std::fill_n(from + bytes * static_cast<std::size_t>(first_block),
                  bytes * static_cast<std::size_t>(end_block - first_block), std::byte{0xFF});
    }
  }

  // Keys and values of these tokens alone.
  void store(const std::vector<AttentionPart>& parts) {
    store(parts, AttentionStep(parts, layer_.num_blocks, blocks_each_));
  }

  void run(const std::vector<AttentionPart>& parts,
           AttentionKernel kernel = AttentionKernel::kBest) {
    const AttentionStep step(parts, layer_.num_blocks, blocks_each_);
    store(parts, step);
    auto q = rows(queries_, parts, shape_.num_heads);
    std::vector<float> y(q.size(), NAN);
    kernels::AttentionArgs args = arguments(step, q, y);
    args.context_max += more_splits_ * kernels::kAttentionSplit;
    args.num_table_blocks += more_splits_ * kernels::kAttentionSplit / kBlockSize;
    const cuda::AttentionSizes sizes = cuda::attention_sizes(args);
    std::vector<cuda::Words4> scratch(sizes.scratch_bytes / sizeof(cuda::Words4) + kGuardWords);
    std::memset(scratch.data(), 0xFF, scratch.size() * sizeof(cuda::Words4));
    if (counters_.num_bytes() < sizes.counter_bytes) {
      counters_ = kernels::Memory::allocate(device_under_test(), sizes.counter_bytes);
      const std::vector<std::byte> zeros(sizes.counter_bytes);
      copy_to_device(counters_.data(), zeros.data(), zeros.size());
    }
    (void)take_num_launches();
    cuda::paged_attention(
        args,
        {.scratch = scratch.data(), .counters = static_cast<std::uint32_t*>(counters_.data())},
        nullptr, kernel);
    num_launches_ = take_num_launches();
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(scratch.data());
    EXPECT_TRUE(std::all_of(bytes + sizes.scratch_bytes,
                            bytes + scratch.size() * sizeof(cuda::Words4),
                            [](std::uint8_t byte) { return byte == 0xFF; }))
        << "written beyond the scratch memory";
    expect_counters_are_zeros();
    keep(parts, y);
  }

  // The step by kernels::reference_backend(), from the rounded numbers.
  void run_plain(const std::vector<AttentionPart>& parts) {
    const AttentionStep step(parts, layer_.num_blocks, blocks_each_);
    auto q = rows(queries_, parts, shape_.num_heads,
                  type_ == ElementType::kE4M3 ? ElementType::kBF16 : type_);
    auto k = rows(keys_, parts, shape_.num_kv_heads, type_);
    auto v = rows(values_, parts, shape_.num_kv_heads, type_);
    std::vector<float> y(q.size(), NAN);
    layer_.type = ElementType::kF32;
    kernels::WorkerPool pool(1);
    kernels::Stream stream(kernels::reference_backend(), pool);
    kernels::kv_store(stream, {.keys = view<const float>(k, width(shape_.num_kv_heads)),
                               .values = view<const float>(v, width(shape_.num_kv_heads)),
                               .slots = step.slots.data(),
                               .cache = layer_});
    kernels::paged_attention(stream, arguments(step, q, y));
    keep(parts, y);
  }

  // [num_sequences, length, num_heads * head_dim]
  const std::vector<float>& output() const { return output_; }
  int num_blocks() const { return layer_.num_blocks; }
  // Of the first tokens.
  void set_values(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), values_.begin());
  }

  // Bounds of so many splits more than there are, as a graph for several sizes has.
  void set_more_splits(int count) { more_splits_ = count; }
  // Of attention in the last run; 0 on a real device.
  int num_launches() const { return num_launches_; }

 private:
  void store(const std::vector<AttentionPart>& parts, const AttentionStep& step) {
    auto k = rows(keys_, parts, shape_.num_kv_heads);
    auto v = rows(values_, parts, shape_.num_kv_heads);
    cuda::kv_store({.keys = view<const float>(k, width(shape_.num_kv_heads)),
                    .values = view<const float>(v, width(shape_.num_kv_heads)),
                    .slots = step.slots.data(),
                    .cache = layer_},
                   nullptr);
  }

  void expect_counters_are_zeros() const {
    std::vector<std::byte> counters(counters_.num_bytes());
    if (!counters.empty()) copy_to_host(counters.data(), counters_.data(), counters.size());
    EXPECT_EQ(std::ranges::count(counters, std::byte{}), std::ssize(counters))
        << "the next launch counts from here";
  }

  std::int64_t width(int heads) const { return std::int64_t{heads} * shape_.head_dim; }

  std::vector<float> make(int num_sequences, int heads, unsigned seed) const {
    return random_floats(static_cast<std::size_t>(num_sequences * length_ * width(heads)), seed,
                         1.5F);
  }

  std::vector<float> rows(const std::vector<float>& all, const std::vector<AttentionPart>& parts,
                          int heads, ElementType type = ElementType::kF32) const {
    std::vector<float> some;
    for (const AttentionPart& part : parts) {
      const auto first =
          all.begin() + (std::int64_t{part.sequence} * length_ + part.first) * width(heads);
      std::transform(first, first + part.count * width(heads), std::back_inserter(some),
                     [&](float value) { return rounded_kv(type, value); });
    }
    return some;
  }

  kernels::AttentionArgs arguments(const AttentionStep& step, std::vector<float>& q,
                                   std::vector<float>& y) const {
    return {.queries = view<const float>(q, width(shape_.num_heads)),
            .cache = layer_,
            .num_heads = shape_.num_heads,
            .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
            .soft_cap = shape_.soft_cap,
            .window = shape_.window,
            .sinks = sinks_.empty() ? nullptr : sinks_.data(),
            .num_sequences = static_cast<std::int64_t>(step.first_positions.size()),
            .chunk_max = step.chunk_max,
            .context_max = step.context_max,
            .num_table_blocks = step.block_offsets.back(),
            .cu_seqlens = step.cu_seqlens.data(),
            .first_positions = step.first_positions.data(),
            .block_offsets = step.block_offsets.data(),
            .block_tables = step.tables.data(),
            .table_starts = step.table_starts.data(),
            .y = view<float>(y, width(shape_.num_heads))};
  }

  void keep(const std::vector<AttentionPart>& parts, const std::vector<float>& y) {
    auto from = y.begin();
    for (const AttentionPart& part : parts) {
      const std::int64_t to =
          (std::int64_t{part.sequence} * length_ + part.first) * width(shape_.num_heads);
      const std::int64_t count = part.count * width(shape_.num_heads);
      std::copy_n(from, count, output_.begin() + to);
      from += count;
    }
  }

  AttentionShape shape_;
  ElementType type_;
  int length_;
  int blocks_each_;
  KvLayer layer_;
  std::vector<cuda::Words4> cached_keys_;
  std::vector<cuda::Words4> cached_values_;
  std::vector<float> queries_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<float> sinks_;  // empty: none
  std::vector<float> output_;
  kernels::Memory counters_;  // of all runs, as a stream's
  int more_splits_ = 0;
  int num_launches_ = 0;
};

}  // namespace lmtp::testing

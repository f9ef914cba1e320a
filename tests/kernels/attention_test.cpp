#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "kernel_support.h"
#include "kernels/e4m3.h"
#include "lmtp/base/half.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using kernels::KvLayer;
using kernels::Stream;
using kernels::WorkerPool;
using testing::expect_same_bits;

struct Shape {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int window = 0;
  float soft_cap = 0.0F;
  bool has_sinks = false;
};

// Windows shorter than a block, across splits, and longer than all.
constexpr Shape kShapes[] = {{2, 2, 64},
                             {5, 5, 12},
                             {4, 2, 20},
                             {6, 1, 80},
                             {1, 1, 3},
                             {4, 2, 20, 0, 2.0F},
                             {2, 1, 16, 5},
                             {3, 3, 8, 1},
                             {4, 1, 24, 70, 1.5F},
                             {2, 2, 16, 257},
                             {2, 2, 16, 5000},
                             {1, 1, 512},
                             {2, 1, 255},
                             {17, 1, 20, 100},
                             {4, 2, 20, 0, 2.0F, true},
                             {17, 1, 20, 257, 0.0F, true}};

constexpr ElementType kTypes[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16,
                                  ElementType::kE4M3};

// Not a number, as one f32, as two bf16 or f16 and as four e4m3.
const float kSpoiled = std::bit_cast<float>(0xFFFFFFFFU);

// One layer's cache in which each sequence has blocks of its own, in no order.
struct Cache {
  Cache(const Shape& shape, ElementType type, int num_sequences, int length_max)
      : blocks_each((length_max + kBlockSize - 1) / kBlockSize) {
    layer.num_blocks = 1 + num_sequences * blocks_each;
    layer.num_kv_heads = shape.num_kv_heads;
    layer.head_dim = shape.head_dim;
    layer.type = type;
    // Unwritten blocks hold NaN, so that reading them shows.
    const auto units =
        static_cast<std::size_t>(layer.num_blocks * layer.block_size() / layer.per_unit());
    keys.assign(units, kSpoiled);
    values.assign(units, kSpoiled);
    layer.keys = keys.data();
    layer.values = values.data();
  }

  std::int32_t block(int sequence, int index) const {
    return 1 + (index * 7 + 3) % blocks_each * ((layer.num_blocks - 1) / blocks_each) + sequence;
  }

  int blocks_each;
  std::vector<float> keys;
  std::vector<float> values;
  KvLayer layer;
};

// The tokens [first, first + count) of a sequence go through in one step.
struct Part {
  int sequence;
  int first;
  int count;
};

// Runs steps over sequences whose queries, keys and values are functions of (sequence, position).
class Attention {
 public:
  Attention(const Shape& shape, ElementType type, int num_sequences, int length)
      : shape_(shape),
        length_(length),
        cache_(shape, type, num_sequences, length),
        queries_(make(num_sequences, shape.num_heads, 11)),
        keys_(make(num_sequences, shape.num_kv_heads, 12)),
        values_(make(num_sequences, shape.num_kv_heads, 13)),
        output_(queries_.size(), NAN) {
    for (int head = 0; shape.has_sinks && head < shape.num_heads; ++head) {
      sinks_.push_back(1.5F * static_cast<float>(head) - 2.0F);
    }
  }

  void step(const kernels::Backend& backend, const std::vector<Part>& parts, int num_threads) {
    Stream stream(backend, num_threads == 1 ? one_ : two_);
    std::vector<std::int32_t> cu_seqlens = {0};
    std::vector<std::int32_t> first_positions;
    std::vector<std::int32_t> block_offsets = {0};
    std::vector<std::int32_t> tables;
    std::vector<std::int32_t> slots;
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;
    int chunk_max = 0;
    int context_max = 0;
    for (const Part& part : parts) {
      chunk_max = std::max(chunk_max, part.count);
      context_max = std::max(context_max, part.first + part.count);
      for (int position = part.first; position < part.first + part.count; ++position) {
        append(q, queries_, part.sequence, position, shape_.num_heads);
        append(k, keys_, part.sequence, position, shape_.num_kv_heads);
        append(v, values_, part.sequence, position, shape_.num_kv_heads);
        slots.push_back(cache_.block(part.sequence, position / kBlockSize) * kBlockSize +
                        position % kBlockSize);
      }
      cu_seqlens.push_back(static_cast<std::int32_t>(slots.size()));
      first_positions.push_back(part.first);
      for (int index = 0; index * kBlockSize < part.first + part.count; ++index) {
        tables.push_back(cache_.block(part.sequence, index));
      }
      block_offsets.push_back(static_cast<std::int32_t>(tables.size()));
    }
    const std::vector<std::int32_t> table_starts =
        testing::spread_tables(parts.front().first, block_offsets, tables);
    const std::int64_t width = shape_.num_heads * shape_.head_dim;
    const std::int64_t kv_width = shape_.num_kv_heads * shape_.head_dim;
    std::vector<float> y(q.size(), NAN);
    kernels::kv_store(stream, {.keys = testing::view<const float>(k, kv_width),
                               .values = testing::view<const float>(v, kv_width),
                               .slots = slots.data(),
                               .cache = cache_.layer});
    kernels::paged_attention(stream,
                             {.queries = testing::view<const float>(q, width),
                              .cache = cache_.layer,
                              .num_heads = shape_.num_heads,
                              .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
                              .soft_cap = shape_.soft_cap,
                              .window = shape_.window,
                              .sinks = sinks_.empty() ? nullptr : sinks_.data(),
                              .num_sequences = static_cast<std::int64_t>(parts.size()),
                              .chunk_max = chunk_max,
                              .context_max = context_max,
                              .num_table_blocks = block_offsets.back(),
                              .cu_seqlens = cu_seqlens.data(),
                              .first_positions = first_positions.data(),
                              .block_offsets = block_offsets.data(),
                              .block_tables = tables.data(),
                              .table_starts = table_starts.data(),
                              .y = testing::view<float>(y, width)});
    std::size_t from = 0;
    for (const Part& part : parts) {
      const std::int64_t to = (std::int64_t{part.sequence} * length_ + part.first) * width;
      const auto count = static_cast<std::size_t>(part.count * width);
      std::copy_n(y.begin() + static_cast<std::ptrdiff_t>(from), count, output_.begin() + to);
      from += count;
    }
  }

  // [num_sequences, length, num_heads * head_dim]
  const std::vector<float>& output() const { return output_; }
  Cache& cache() { return cache_; }

  // Of the first tokens.
  void set_values(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), values_.begin());
  }
  void raise_sinks(float by) {
    for (float& sink : sinks_) sink += by;
  }
  // Sets a value of the first sequence, in all dimensions.
  void set_value(int position, float value) {
    const std::int64_t width = shape_.num_kv_heads * shape_.head_dim;
    std::fill_n(values_.begin() + position * width, width, value);
  }

 private:
  std::vector<float> make(int num_sequences, int heads, unsigned seed) const {
    const int count = num_sequences * length_ * heads * shape_.head_dim;
    return testing::random_floats(static_cast<std::size_t>(count), seed, 1.5F);
  }

  void append(std::vector<float>& to, const std::vector<float>& from, int sequence, int position,
              int heads) const {
    const std::int64_t width = heads * shape_.head_dim;
    const auto at = from.begin() + (std::int64_t{sequence} * length_ + position) * width;
    to.insert(to.end(), at, at + width);
  }

  Shape shape_;
  int length_;
  WorkerPool one_{1};
  WorkerPool two_{2};
  Cache cache_;
  std::vector<float> queries_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<float> sinks_;  // empty: none
  std::vector<float> output_;
};

class AttentionTest : public testing::BackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, AttentionTest, ::testing::ValuesIn(kernels::cpu_backends()),
                         testing::backend_name);

TEST_P(AttentionTest, EqualsItsPlainTwin) {
  for (const ElementType type : kTypes) {
    // A weight of bf16 may be rounded the other way, which is 2^-8 of it; f16 is computed in f32.
    const bool is_exact = type == ElementType::kF32 || type == ElementType::kF16;
    const float tolerance = is_exact ? 1e-5F : 4e-3F;
    for (const Shape& shape : kShapes) {
      // How splits meet does not depend on the type.
      const bool tries_splits = type == ElementType::kF32;
      for (const int length : {1, 17, tries_splits && shape.num_heads == 2 ? 530 : 300}) {
        SCOPED_TRACE(length);
        Attention attention(shape, type, 1, length);
        Attention expected(shape, type, 1, length);
        attention.step(*GetParam(), {{0, 0, length}}, 2);
        expected.step(kernels::reference_backend(), {{0, 0, length}}, 1);
        for (std::size_t i = 0; i < expected.output().size(); ++i) {
          ASSERT_NEAR(attention.output()[i], expected.output()[i], tolerance) << "element " << i;
        }
      }
    }
  }
}

// Beside one token of value 1 the output is the weight that is left, 1 / (1 + e^(sink - score)),
// whatever the score.
TEST_P(AttentionTest, ASinkIsAScoreOfNoValue) {
  for (const ElementType type : kTypes) {
    for (const float by : {1.25F, -3.0F}) {
      Attention attention({3, 1, 16, 1, 2.0F, true}, type, 1, 1);
      Attention raised({3, 1, 16, 1, 2.0F, true}, type, 1, 1);
      raised.raise_sinks(by);
      for (Attention* each : {&attention, &raised}) {
        each->set_value(0, 1.0F);
        each->step(*GetParam(), {{0, 0, 1}}, 1);
      }
      for (std::size_t i = 0; i < attention.output().size(); ++i) {
        const float before = std::log(1.0F / attention.output()[i] - 1.0F);
        EXPECT_NEAR(std::log(1.0F / raised.output()[i] - 1.0F), before + by, 1e-4F) << i;
      }
      raised.raise_sinks(1e30F);
      raised.step(*GetParam(), {{0, 0, 1}}, 1);
      EXPECT_EQ(raised.output(), std::vector<float>(raised.output().size()));
    }
  }
}

// All codes as the value of one token, which is what its query gets.
TEST_P(AttentionTest, EveryNumberOfE4M3IsReadAsItWasStored) {
  constexpr int kHeadDim = 256;
  Attention attention({1, 1, kHeadDim}, ElementType::kE4M3, 1, 1);
  std::vector<float> codes(kHeadDim);
  for (std::uint32_t code = 0; code < kHeadDim; ++code) codes[code] = kernels::widen_e4m3(code);
  attention.set_values(codes);
  attention.step(*GetParam(), {{0, 0, 1}}, 1);
  for (std::size_t code = 0; code < codes.size(); ++code) {
    const float output = attention.output()[code];
    ASSERT_EQ(std::isnan(output), std::isnan(codes[code])) << code;
    if (!std::isnan(output)) {
      ASSERT_EQ(output, codes[code]) << code;
    }
  }
}

// The same of f16, 256 at a time: with subnormal and infinite ones.
TEST_P(AttentionTest, EveryNumberOfF16IsReadAsItWasStored) {
  constexpr std::uint32_t kHeadDim = 256;
  for (std::uint32_t first = 0; first < (1U << 16); first += kHeadDim) {
    Attention attention({1, 1, kHeadDim}, ElementType::kF16, 1, 1);
    std::vector<float> codes(kHeadDim);
    for (std::uint32_t i = 0; i < kHeadDim; ++i) codes[i] = half_value(first + i);
    attention.set_values(codes);
    attention.step(*GetParam(), {{0, 0, 1}}, 1);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float output = attention.output()[i];
      ASSERT_EQ(std::isnan(output), std::isnan(codes[i])) << first + i;
      if (!std::isnan(output)) {
        ASSERT_EQ(output, codes[i]) << first + i;
      }
    }
  }
}

// Three sequences take chunks of their own sizes, all of them together in one step.
void run_in_chunks(Attention& attention, const kernels::Backend& backend, int chunk, int length) {
  int done[3] = {0, 0, 0};
  for (bool more = true; more;) {
    std::vector<Part> step;
    for (int sequence = 0; sequence < 3; ++sequence) {
      const int count = std::min(chunk + 2 * sequence, length - done[sequence]);
      if (count > 0) {
        step.push_back({sequence, done[sequence], count});
        done[sequence] += count;
      }
    }
    more = !step.empty();
    if (more) attention.step(backend, step, 1 + chunk % 2);
  }
}

TEST_P(AttentionTest, BitsDependNeitherOnChunksNorOnTheBatchNorOnThreads) {
  constexpr int kLength = 300;  // more than one split, so that windows begin in the second
  for (const ElementType& type : kTypes) {
    for (const Shape& shape : kShapes) {
      // Each shape and each type meets all chunks; all three together meet in half of the cases.
      const bool is_odd = ((&type - kTypes) + (&shape - kShapes)) % 2 == 1;
      Attention whole(shape, type, 3, kLength);
      for (int sequence = 0; sequence < 3; ++sequence) {
        whole.step(*GetParam(), {{sequence, 0, kLength}}, 1);
      }
      for (const int chunk : is_odd ? std::array{1, 64} : std::array{5, 200}) {
        if (chunk < 64 && (shape.head_dim > 64 || shape.num_heads > 6)) {
          continue;  // slow, and covered by the others
        }
        SCOPED_TRACE(chunk);
        Attention parts(shape, type, 3, kLength);
        run_in_chunks(parts, *GetParam(), chunk, kLength);
        expect_same_bits(parts.output(), whole.output());
      }
    }
  }
}

TEST_P(AttentionTest, WhatIsBeforeTheWindowIsNotRead) {
  constexpr int kLength = 300;
  for (const ElementType type : kTypes) {
    Attention clean({2, 1, 16, 40}, type, 1, kLength);
    Attention spoiled({2, 1, 16, 40}, type, 1, kLength);
    for (Attention* attention : {&clean, &spoiled}) {
      attention->step(*GetParam(), {{0, 0, kLength - 1}}, 1);
    }
    // Whole blocks before the last token's window.
    for (int index = 0; (index + 1) * kBlockSize <= kLength - 40; ++index) {
      const KvLayer& layer = spoiled.cache().layer;
      const std::int32_t block = spoiled.cache().block(0, index);
      const std::int64_t units = layer.block_size() / layer.per_unit();
      std::fill_n(layer.key_units(block), units, kSpoiled);
      std::fill_n(layer.value_units(block), units, kSpoiled);
    }
    for (Attention* attention : {&clean, &spoiled}) {
      attention->step(*GetParam(), {{0, kLength - 1, 1}}, 1);
    }
    expect_same_bits(spoiled.output(), clean.output());
  }
}

// A block whose first tokens were copied stays usable, and so is its copy.
TEST_P(AttentionTest, ACopiedBlockServesAsTheOriginal) {
  for (const ElementType type : kTypes) {
    for (const int num_tokens : {1, 8, 9, 16}) {
      Attention original({4, 2, 20}, type, 1, 48);
      Attention copied({4, 2, 20}, type, 1, 48);
      Cache& cache = copied.cache();
      const std::int32_t to = cache.block(0, 1);
      const int length = kBlockSize + num_tokens;
      for (Attention* attention : {&original, &copied}) {
        attention->step(*GetParam(), {{0, 0, length}}, 1);
      }
      // To block 0 and back, with the old contents overwritten by NaN.
      WorkerPool pool(1);
      Stream stream(*GetParam(), pool);
      const kernels::KvCopy out{.from = to, .to = 0, .num_tokens = num_tokens};
      kernels::kv_copy(stream, cache.layer, {.copies = &out, .count = 1});
      const std::int64_t units = cache.layer.block_size() / cache.layer.per_unit();
      std::fill_n(cache.layer.key_units(to), units, kSpoiled);
      std::fill_n(cache.layer.value_units(to), units, kSpoiled);
      const kernels::KvCopy back{.from = 0, .to = to, .num_tokens = num_tokens};
      kernels::kv_copy(stream, cache.layer, {.copies = &back, .count = 1});
      for (Attention* attention : {&original, &copied}) {
        attention->step(*GetParam(), {{0, length, 1}}, 1);
      }
      expect_same_bits(copied.output(), original.output());
    }
  }
}

// A token's NaN or infinity does not reach tokens before it, whatever shares their step.
TEST_P(AttentionTest, AValueThatIsNoNumberIsSeenFromItsTokenOn) {
  constexpr int kLength = 60;
  constexpr int kBad = 37;
  const Shape shape{4, 2, 20};
  const std::int64_t width = shape.num_heads * shape.head_dim;
  for (const ElementType type : kTypes) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      Attention clean(shape, type, 1, kLength);
      Attention spoiled(shape, type, 1, kLength);
      spoiled.set_value(kBad, bad);
      for (Attention* attention : {&clean, &spoiled}) {
        attention->step(*GetParam(), {{0, 0, kLength}}, 1);
      }
      const auto end = static_cast<std::ptrdiff_t>(kBad * width);
      expect_same_bits({spoiled.output().begin(), spoiled.output().begin() + end},
                       {clean.output().begin(), clean.output().begin() + end});
      const float seen = spoiled.output()[static_cast<std::size_t>(end)];
      if (type == ElementType::kE4M3 && std::isinf(bad)) {
        ASSERT_EQ(seen > 0.0F, bad > 0.0F) << "448 of 38 tokens";
        ASSERT_TRUE(std::isfinite(seen));
      } else {
        ASSERT_FALSE(std::isfinite(seen));
      }
    }
  }
}

}  // namespace
}  // namespace lmtp

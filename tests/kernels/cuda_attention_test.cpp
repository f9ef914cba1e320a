// Attention and the KV store for a device: against the plain twin, and bit for bit over decode,
// prefill, chunks, neighbours and the order of threads.
#include "cuda/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "cuda_attention_data.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "kernels/e4m3.h"

namespace lmtp {
namespace {

namespace cuda = kernels::cuda;
using cuda::AttentionKernel;
using kernels::ElementType;
using testing::Attention;
using testing::expect_same_bits;
using Part = testing::AttentionPart;
using Shape = testing::AttentionShape;

// Grouped heads 1, 2, 4, 8 and more than a tile; head_dims that tiles divide and do not; windows
// shorter than a block, across splits and longer than all.
constexpr Shape kShapes[] = {
    {2, 2, 64},       {4, 2, 80},          {4, 1, 128},          {8, 1, 16},
    {1, 1, 256},      {3, 3, 12},          {17, 1, 16},          {2, 1, 3},
    {4, 2, 32, 5},    {2, 1, 32, 0, 2.0F}, {2, 2, 16, 70, 1.5F}, {2, 1, 32, 257},
    {1, 1, 96, 5000}, {2, 2, 16, 1},       {2, 1, 184, 70},      {8, 2, 16, 257, 0.0F, true},
};

struct AttentionCase {
  ElementType type;
  Shape shape;
};

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  for (const Shape& shape : kShapes) {
    all.push_back({ElementType::kBF16, shape});
  }
  // f16 differs in its conversions and its instruction alone; in f32 one kernel takes every row by
  // itself.
  all.push_back({ElementType::kF16, {4, 2, 80}});
  // e4m3: copies of half the size, for a tile that is alone, for pairs of tiles, and for 16.
  all.push_back({ElementType::kE4M3, {3, 3, 12}});
  all.push_back({ElementType::kE4M3, {4, 2, 80}});
  all.push_back({ElementType::kE4M3, {2, 1, 32, 257}});
  all.push_back({ElementType::kE4M3, {2, 1, 184, 70}});
  all.push_back({ElementType::kF32, {2, 1, 20, 70, 1.5F}});
  all.push_back({ElementType::kF32, {2, 1, 80, 0, 0.0F, true}});
  return all;
}

std::string case_name(const ::testing::TestParamInfo<AttentionCase>& info) {
  const Shape& s = info.param.shape;
  const char* type = info.param.type == ElementType::kF32    ? "f32"
                     : info.param.type == ElementType::kF16  ? "f16"
                     : info.param.type == ElementType::kE4M3 ? "e4m3"
                                                             : "bf16";
  return type + std::string("_") + std::to_string(s.num_heads) + "x" +
         std::to_string(s.num_kv_heads) + "x" + std::to_string(s.head_dim) + "_window" +
         std::to_string(s.window) + (s.soft_cap > 0.0F ? "_capped" : "") +
         (s.has_sinks ? "_sinks" : "");
}

class CudaAttentionTest : public ::testing::TestWithParam<AttentionCase> {
 protected:
  void TearDown() override { testing::set_thread_order(0); }

  static Attention make(int num_sequences, int length) {
    return {GetParam().shape, GetParam().type, num_sequences, length};
  }
};

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionTest, ::testing::ValuesIn(cases()), case_name);

TEST_P(CudaAttentionTest, EqualsItsPlainTwin) {
  const float tolerance = GetParam().type == ElementType::kF32   ? 1e-5F
                          : GetParam().type == ElementType::kF16 ? 2e-3F
                                                                 : 1e-2F;
  for (const int length : {1, 17, 64, 130, 257, 300, 520}) {
    SCOPED_TRACE(length);
    Attention attention = make(1, length);
    Attention expected = make(1, length);
    attention.run({{0, 0, length}});
    expected.run_plain({{0, 0, length}});
    for (std::size_t i = 0; i < expected.output().size(); ++i) {
      ASSERT_NEAR(attention.output()[i], expected.output()[i], tolerance) << "element " << i;
    }
  }
}

// A prompt at once, in chunks, and token by token at the places where blocks, steps and splits
// begin and end. Two splits; three, which take time, for two shapes.
TEST_P(CudaAttentionTest, BitsDependNeitherOnChunksNorOnTheKernel) {
  const Shape& shape = GetParam().shape;
  const int length = shape.head_dim == 64 || shape.window == 257 ? 520 : 270;
  Attention whole = make(1, length);
  whole.run({{0, 0, length}}, AttentionKernel::kPrefill);
  Attention parts = make(1, length);
  int done = 0;
  for (const int last : {1,   2,   15,  16,  17,  63,  64,  65,  66,  70,  255,
                         256, 257, 258, 266, 270, 511, 512, 513, 514, 519, 520}) {
    const int end = std::min(last, length);
    if (end == done) break;
    parts.run({{0, done, end - done}});
    done = end;
  }
  expect_same_bits(parts.output(), whole.output());
}

TEST_P(CudaAttentionTest, BitsDependNeitherOnTheBatchNorOnTheOrderOfThreads) {
  constexpr int kLength = 270;
  Attention whole = make(3, kLength);
  for (int sequence = 0; sequence < 3; ++sequence) {
    whole.run({{sequence, 0, kLength}});
  }
  testing::set_thread_order(1);
  Attention together = make(3, kLength);
  together.run({{0, 0, 200}, {1, 0, kLength - 1}, {2, 0, 40}});
  together.run({{2, 40, 100}, {0, 200, 69}});
  together.run({{0, 269, 1}, {1, kLength - 1, 1}, {2, 140, kLength - 140}});
  expect_same_bits(together.output(), whole.output());
}

TEST_P(CudaAttentionTest, WhatIsBeforeTheWindowIsNotRead) {
  constexpr int kLength = 300;
  const int window = GetParam().shape.window;
  if (window == 0 || window > kLength) GTEST_SKIP() << "nothing is hidden";
  for (const int chunk : {1, 40}) {
    Attention clean = make(1, kLength);
    Attention spoiled = make(1, kLength);
    for (Attention* attention : {&clean, &spoiled}) {
      attention->run({{0, 0, kLength - chunk}});
    }
    // Blocks of which no query of the chunk sees a token; index 0 to the last such one.
    const int blocks_each = (kLength + kBlockSize - 1) / kBlockSize;
    for (int index = 0; (index + 1) * kBlockSize <= kLength - chunk + 1 - window; ++index) {
      const int block = 1 + (index * 7 + 3) % blocks_each;
      spoiled.spoil(block, block + 1);
    }
    for (Attention* attention : {&clean, &spoiled}) {
      attention->run({{0, kLength - chunk, chunk}});
    }
    expect_same_bits(spoiled.output(), clean.output());
  }
}

// All codes as the value of one token, which is what its query gets.
TEST(CudaAttentionLaunchTest, EveryNumberOfE4M3IsReadAsItWasStored) {
  constexpr int kHeadDim = 256;
  std::vector<float> codes(kHeadDim);
  for (std::uint32_t code = 0; code < kHeadDim; ++code) codes[code] = kernels::widen_e4m3(code);
  for (const AttentionKernel kernel : {AttentionKernel::kBest, AttentionKernel::kPrefill}) {
    Attention attention({1, 1, kHeadDim}, ElementType::kE4M3, 1, 1);
    attention.set_values(codes);
    attention.run({{0, 0, 1}}, kernel);
    for (std::size_t code = 0; code < codes.size(); ++code) {
      const float output = attention.output()[code];
      const bool both_nan = std::isnan(output) && std::isnan(codes[code]);
      ASSERT_TRUE(both_nan || output == codes[code]) << code << ": " << output;
    }
  }
}

// Decode then holds the values of all dimensions at once, elsewhere of 128 at a time.
TEST(CudaAttentionLaunchTest, MoreSharedMemoryChangesNothing) {
  constexpr std::size_t kSharedBytes80 = std::size_t{163} << 10;
  constexpr std::size_t kSharedBytes86 = std::size_t{99} << 10;
  constexpr int kLength = 300;
  for (const int head_dim : {184, 256}) {
    const Shape shape{2, 1, head_dim};
    Attention less(shape, ElementType::kBF16, 1, kLength);
    Attention more(shape, ElementType::kBF16, 1, kLength);
    for (Attention* attention : {&less, &more}) {
      attention->run({{0, 0, kLength - 2}});
      if (!testing::set_shared_bytes_max(attention == &less ? kSharedBytes86 : kSharedBytes80)) {
        GTEST_SKIP() << "a real device has what it has";
      }
      attention->run({{0, kLength - 2, 1}});
      attention->run({{0, kLength - 1, 1}});
    }
    testing::set_shared_bytes_max(kSharedBytes86);
    expect_same_bits(more.output(), less.output());
  }
}

// What the tests above would see if decode had another order than prefill: nearly every row.
TEST(CudaAttentionLaunchTest, AnotherOrderOfSumsShows) {
  constexpr int kLength = 300;
  constexpr int kFirst = 200;
  const Shape shape{4, 2, 64};
  Attention whole(shape, ElementType::kBF16, 1, kLength);
  Attention parts(shape, ElementType::kBF16, 1, kLength);
  whole.run({{0, 0, kLength}}, AttentionKernel::kPrefill);
  parts.run({{0, 0, kFirst}}, AttentionKernel::kPrefill);
  if (!testing::set_backward_sums(true)) {
    GTEST_SKIP() << "the order of a real device's sums is its own";
  }
  for (int position = kFirst; position < kLength; ++position) {
    parts.run({{0, position, 1}});
  }
  testing::set_backward_sums(false);
  const int width = shape.num_heads * shape.head_dim;
  for (int position = 0; position < kLength; ++position) {
    const auto at = std::ptrdiff_t{position} * width;
    const bool same = std::equal(parts.output().begin() + at, parts.output().begin() + at + width,
                                 whole.output().begin() + at);
    EXPECT_EQ(same, position < kFirst) << position;
  }
}

TEST(CudaAttentionLaunchTest, ALargerBoundChangesNothing) {
  // As in a graph for several sizes.
  const Shape shape{4, 2, 64};
  Attention one(shape, ElementType::kBF16, 2, 400);
  Attention other(shape, ElementType::kBF16, 2, 400);
  one.run({{0, 0, 399}});
  one.run({{0, 399, 1}});
  other.run({{0, 0, 399}, {1, 0, 400}});
  other.run({{0, 399, 1}, {1, 0, 400}});
  std::vector<float> a = one.output();
  std::vector<float> b = other.output();
  a.resize(a.size() / 2);
  b.resize(b.size() / 2);
  expect_same_bits(a, b);
}

// Splits of all sequences are stored contiguously, for any lengths; a graph's bound may be larger.
void expect_the_same_alone(const std::vector<int>& lengths) {
  const auto num_streams = static_cast<int>(lengths.size());
  const int longest = *std::max_element(lengths.begin(), lengths.end());
  const Shape shape{4, 2, 32};
  Attention alone(shape, ElementType::kBF16, num_streams, longest);
  Attention together(shape, ElementType::kBF16, num_streams, longest);
  std::vector<Part> step;
  for (int stream = 0; stream < num_streams; ++stream) {
    const int last = lengths[static_cast<std::size_t>(stream)] - 1;
    for (Attention* attention : {&alone, &together}) {
      if (last > 0) {
        attention->run({{stream, 0, last}});
      }
    }
    alone.run({{stream, last, 1}});
    step.push_back({stream, last, 1});
  }
  together.run(step);
  expect_same_bits(together.output(), alone.output());
}

TEST(CudaAttentionLaunchTest, AStreamIsTheSameAmongLongerAndShorterOnes) {
  expect_the_same_alone({520, 3, 256, 257, 1, 513});
}

// So many short ones that blocks are launched by parts; more than a warp looks through at once.
TEST(CudaAttentionLaunchTest, AStreamIsTheSameAmongManyMuchShorterOnes) {
  std::vector<int> lengths(40, 2);
  lengths[0] = 17;
  lengths[7] = 1100;
  lengths[8] = 300;
  lengths[39] = 530;
  kernels::AttentionArgs args;
  args.cache.num_kv_heads = 1;
  args.cache.head_dim = 32;
  args.num_sequences = 40;
  args.context_max = 1100;
  args.num_table_blocks = 36 + 2 + 69 + 19 + 34;
  EXPECT_LT(cuda::num_decode_blocks(args), 5 * 40);  // or it is another test's case
  expect_the_same_alone(lengths);
}

TEST(CudaAttentionLaunchTest, ALongStreamAmongShortOnesTakesWhatItsOwnSplitsNeed) {
  constexpr int kLongest = 1 << 17;
  kernels::AttentionArgs args;
  args.cache.num_kv_heads = 8;
  args.cache.head_dim = 128;
  args.cache.type = ElementType::kBF16;
  args.num_heads = 32;
  args.num_sequences = 256;
  args.chunk_max = 1;
  args.context_max = kLongest;
  args.num_table_blocks = 255 + kLongest / kBlockSize;  // the others have a block each
  constexpr std::size_t kSplitBytes = std::size_t{8} * 4 * (128 + 2) * sizeof(float);
  EXPECT_LE(cuda::attention_sizes(args).scratch_bytes,
            (kLongest / kernels::kAttentionSplit + 256) * kSplitBytes);
  EXPECT_LE(cuda::num_decode_blocks(args), (kLongest / kernels::kAttentionSplit + 256) * 8);
}

}  // namespace
}  // namespace lmtp

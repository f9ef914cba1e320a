// Decode attention of several splits: the block that is done last merges them, in the same launch.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cuda_attention_data.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "kernels/attention.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using testing::Attention;
using testing::expect_same_bits;
using Kernel = testing::AttentionKernel;
using Part = testing::AttentionPart;
using Shape = testing::AttentionShape;

class CudaAttentionMergeTest : public ::testing::Test {
 protected:
  void TearDown() override { testing::set_thread_order(0); }
};

// The step by decode is to have the bits of prefill, which merges in a loop: in several orders of
// blocks and threads, each twice with the same counters, and with bounds of more splits.
void expect_the_bits_of_prefill(const Shape& shape, ElementType type,
                                const std::vector<Part>& step) {
  int num_streams = 0;
  int longest = 0;
  std::vector<Part> before;
  for (const Part& part : step) {
    num_streams = std::max(num_streams, part.sequence + 1);
    longest = std::max(longest, part.first + part.count);
    if (part.first > 0) before.push_back({part.sequence, 0, part.first});
  }
  Attention prefill(shape, type, num_streams, longest);
  if (!before.empty()) prefill.store(before);
  prefill.run(step, Kernel::kPrefill);
  Attention decode(shape, type, num_streams, longest);
  if (!before.empty()) decode.store(before);
  for (const unsigned seed : {0U, 1U, 2U, 3U}) {
    testing::set_thread_order(seed);
    for (const int more_splits : {0, 3}) {
      SCOPED_TRACE(::testing::Message()
                   << longest << " tokens, seed " << seed << ", " << more_splits << " more splits");
      decode.set_more_splits(more_splits);
      decode.run(step);
      expect_same_bits(decode.output(), prefill.output());
    }
  }
}

TEST_F(CudaAttentionMergeTest, WhoeverIsLastMergesInOrder) {
  for (const Shape& shape : {Shape{2, 1, 16}, Shape{3, 1, 36}, Shape{2, 2, 128}, Shape{1, 1, 184},
                             Shape{16, 1, 16, 0, 2.0F}}) {
    SCOPED_TRACE(::testing::Message() << shape.num_heads << "x" << shape.head_dim);
    for (const int length : {257, 512, 513, 2100}) {
      expect_the_bits_of_prefill(shape, ElementType::kBF16, {{0, length - 1, 1}});
    }
  }
  expect_the_bits_of_prefill({4, 2, 64}, ElementType::kF16, {{0, 1299, 1}});
  expect_the_bits_of_prefill({4, 2, 80}, ElementType::kE4M3, {{0, 1299, 1}});
}

// Twice as many splits and more as the merge asks for at once.
TEST_F(CudaAttentionMergeTest, ManySplitsAreMergedInOrder) {
  expect_the_bits_of_prefill({2, 1, 16}, ElementType::kBF16,
                             {{0, 18 * kernels::kAttentionSplit - 1, 1}});
}

// Splits that no query sees count for nothing: of the window's one split, two and several.
TEST_F(CudaAttentionMergeTest, SplitsBeforeTheWindowAreNotWaitedFor) {
  for (const int window : {1, 200, 256, 257, 700, 5000}) {
    SCOPED_TRACE(window);
    for (const int length : {257, 1010, 1025, 2100}) {
      expect_the_bits_of_prefill({2, 2, 16, window}, ElementType::kBF16, {{0, length - 1, 1}});
    }
  }
  // The first of several queries sees a split that the last doesn't.
  expect_the_bits_of_prefill({2, 1, 16, 300}, ElementType::kBF16, {{0, 810, 5}});
}

// Sequences of one split, of several, and of more queries than decode takes, among others.
TEST_F(CudaAttentionMergeTest, EachSequenceOfAStepHasItsOwnCounters) {
  const Shape shape{4, 2, 32};
  expect_the_bits_of_prefill(shape, ElementType::kBF16,
                             {{0, 600, 1}, {1, 0, 1}, {2, 256, 1}, {3, 255, 1}, {4, 2099, 1}});
  expect_the_bits_of_prefill(shape, ElementType::kBF16,
                             {{0, 600, 1}, {1, 500, 40}, {2, 256, 8}, {3, 700, 2}, {4, 0, 3}});
  // By parts: one sequence is much longer than the others.
  std::vector<Part> step;
  for (int stream = 0; stream < 40; ++stream) {
    step.push_back({stream, stream % 9 == 7 ? 530 : 1, 1});
  }
  step[7].first = 2099;
  expect_the_bits_of_prefill({2, 1, 16}, ElementType::kBF16, step);
}

TEST_F(CudaAttentionMergeTest, AStepOfDecodesIsOneLaunch) {
  for (const int length : {200, 257, 2100}) {
    Attention attention({2, 1, 16}, ElementType::kBF16, 2, length);
    attention.store({{0, 0, length - 1}, {1, 0, length - 60}});
    attention.run({{0, length - 1, 1}, {1, length - 60, 1}});
    if (attention.num_launches() == 0) GTEST_SKIP() << "a real device does not count them";
    EXPECT_EQ(attention.num_launches(), 1) << length;
    attention.run({{0, length - 1, 1}, {1, length - 60, 60}});
    EXPECT_EQ(attention.num_launches(), 2) << "one of prefill: " << length;
  }
}

TEST_F(CudaAttentionMergeTest, WhereEachSequenceHasOneSplitNoMemoryIsTaken) {
  kernels::AttentionArgs args;
  args.cache = {.num_kv_heads = 8, .head_dim = 128, .type = ElementType::kBF16};
  args.num_heads = 32;
  args.num_sequences = args.num_table_blocks = 7;
  args.chunk_max = 1;
  args.context_max = kernels::kAttentionSplit;
  EXPECT_EQ(testing::cuda::attention_sizes(args).scratch_bytes, 0U);
  EXPECT_EQ(testing::cuda::attention_sizes(args).counter_bytes, 0U);
}

}  // namespace
}  // namespace lmtp

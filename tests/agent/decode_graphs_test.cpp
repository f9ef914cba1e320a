#include "decode_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "kernels/attention.h"

namespace lmtp::agent {
namespace {

using kernels::kAttentionSplit;

int blocks_of(int context) { return (context + kBlockSize - 1) / kBlockSize; }

TEST(DecodeShapeTest, HoldsTheStepWithItsPadding) {
  std::mt19937 generator(7);
  for (int num_rows = 1; num_rows <= kDecodeRowsMax; ++num_rows) {
    std::uniform_int_distribution<int> contexts(1, 40 * num_rows);
    int context_max = 0;
    int num_blocks = 0;
    for (int row = 0; row < num_rows; ++row) {
      const int context = contexts(generator);
      context_max = std::max(context_max, context);
      num_blocks += blocks_of(context);
    }
    const int rows_max = num_rows % 3 == 0 ? num_rows : kDecodeRowsMax;
    const DecodeShape shape = decode_shape(num_rows, rows_max, context_max, num_blocks);
    EXPECT_GE(shape.num_rows, num_rows);
    EXPECT_GE(shape.context_max, context_max);
    EXPECT_GE(shape.num_table_blocks, num_blocks + shape.num_rows - num_rows);
    EXPECT_LT(shape.num_rows, 2 * num_rows);
    EXPECT_LE(shape.num_rows, rows_max);
    EXPECT_LE(shape.num_table_blocks, shape.num_rows * blocks_of(shape.context_max));
  }
}

// A graph each: as many as there are powers of two of its splits.
TEST(DecodeShapeTest, OneStreamGoesThroughFewShapes) {
  std::set<DecodeShape> shapes;
  for (int context = 1; context <= 64 * kAttentionSplit; ++context) {
    shapes.insert(decode_shape(1, kDecodeRowsMax, context, blocks_of(context)));
  }
  EXPECT_EQ(shapes.size(), 7U);
}

TEST(DecodeShapeTest, ALongStreamAmongShortOnesIsNotTakenForManyLongOnes) {
  constexpr int kLongest = 1 << 17;
  const DecodeShape shape = decode_shape(256, 256, kLongest, 255 + blocks_of(kLongest));
  EXPECT_EQ(shape.context_max, kLongest);
  EXPECT_LE(shape.num_table_blocks, 2 * (255 + blocks_of(kLongest)));
}

}  // namespace
}  // namespace lmtp::agent

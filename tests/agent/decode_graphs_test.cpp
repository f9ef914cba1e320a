#include "decode_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>

#include "device_under_test.h"
#include "kernels/attention.h"
#include "kernels/device_api.h"
#include "kernels/worker_pool.h"
#include "staged_memory.h"

namespace lmtp::agent {
namespace {

using kernels::kAttentionSplit;

int blocks_of(int context) { return (context + kBlockSize - 1) / kBlockSize; }

TEST(DecodeShapeTest, HoldsTheStepWithItsPadding) {
  std::mt19937 generator(7);
  for (int num_rows = 1; num_rows <= BatchLimits::kSequencesMax; ++num_rows) {
    std::uniform_int_distribution<int> contexts(1, 40 * num_rows);
    int context_max = 0;
    int num_blocks = 0;
    for (int row = 0; row < num_rows; ++row) {
      const int context = contexts(generator);
      context_max = std::max(context_max, context);
      num_blocks += blocks_of(context);
    }
    const int rows_max = num_rows % 3 == 0 ? num_rows : BatchLimits::kSequencesMax;
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
    shapes.insert(decode_shape(1, BatchLimits::kSequencesMax, context, blocks_of(context)));
  }
  EXPECT_EQ(shapes.size(), 7U);
}

TEST(DecodeShapeTest, ALongStreamAmongShortOnesIsNotTakenForManyLongOnes) {
  constexpr int kLongest = 1 << 17;
  const DecodeShape shape = decode_shape(256, 256, kLongest, 255 + blocks_of(kLongest));
  EXPECT_EQ(shape.context_max, kLongest);
  EXPECT_LE(shape.num_table_blocks, 2 * (255 + blocks_of(kLongest)));
}

TEST(MappedMemoryTest, ABufferThatGrowsIsCountedAndThatOfTheOtherTurnStays) {
  kernels::WorkerPool pool(1);
  kernels::Stream stream(testing::device_under_test(), pool);
  MappedMemory memory(stream, 16);
  EXPECT_EQ(memory.num_moves(), 0);
  memory.reserve(0, 16);
  std::byte* first = memory.data();
  memory.reserve(1, 16);
  std::byte* second = memory.data();
  EXPECT_NE(first, second);
  memory.reserve(0, std::size_t{4} << 20);
  EXPECT_EQ(memory.num_moves(), 1);
  memory.data()[(std::size_t{4} << 20) - 1] = std::byte{1};
  memory.reserve(1, 16);
  EXPECT_EQ(memory.data(), second);
  memory.reserve(0, 16);
  EXPECT_EQ(memory.num_moves(), 1);
}

// Graphs on the device under test, but for those that it refuses.
class DecodeGraphsTest : public ::testing::Test {
 protected:
  using Kind = kernels::DeviceError::Kind;

  DecodeGraphsTest() : pool_(1) {
    kind_ = Kind::kOutOfMemory;
    num_graphs_ = 0;
    refuses_captures_ = refuses_launches_ = false;
    api_ = *testing::device_under_test().device;
    api_.end_capture = [](void* stream) {
      void* graph = testing::device_under_test().device->end_capture(stream);
      if (refuses_captures_) {
        testing::device_under_test().device->release(kernels::DeviceApi::HandleKind::kGraph, graph);
        throw kernels::DeviceError(kind_, "refused");
      }
      ++num_graphs_;
      return graph;
    };
    api_.launch_graph = [](void* graph, void* stream) {
      if (refuses_launches_) throw kernels::DeviceError(kind_, "refused");
      testing::device_under_test().device->launch_graph(graph, stream);
    };
    api_.release = [](kernels::DeviceApi::HandleKind kind, void* handle) {
      num_graphs_ -= kind == kernels::DeviceApi::HandleKind::kGraph ? 1 : 0;
      testing::device_under_test().device->release(kind, handle);
    };
    backend_ = testing::device_under_test();
    backend_.device = &api_;
    stream_.emplace(backend_, pool_);
    graphs_.emplace(*stream_);
  }

  // How often the work itself was called, in `times` steps, by turns.
  int run(const DecodeShape& shape, int times) {
    int num_calls = 0;
    for (int i = 0; i < times; ++i) {
      graphs_->run(shape, i % MappedMemory::kTurns, 0, [&] { ++num_calls; });
    }
    return num_calls;
  }

  static Kind kind_;
  static int num_graphs_;
  static bool refuses_captures_;
  static bool refuses_launches_;

  kernels::DeviceApi api_;
  kernels::Backend backend_;
  kernels::WorkerPool pool_;
  std::optional<kernels::Stream> stream_;
  std::optional<DecodeGraphs> graphs_;
};
DecodeGraphsTest::Kind DecodeGraphsTest::kind_;
int DecodeGraphsTest::num_graphs_;
bool DecodeGraphsTest::refuses_captures_;
bool DecodeGraphsTest::refuses_launches_;

TEST_F(DecodeGraphsTest, AShapeRunsOnceIsCapturedOnceATurnAndIsAGraphThen) {
  EXPECT_EQ(run({1, 256, 16}, 6), 3);
  EXPECT_EQ(num_graphs_, 2);
  EXPECT_EQ(run({.num_rows = 1, .context_max = 256, .num_table_blocks = 16, .chooses = true}, 6),
            3);
  EXPECT_EQ(num_graphs_, 4);
}

TEST_F(DecodeGraphsTest, WhereNoGraphCanBeHadStepsRunWithout) {
  refuses_captures_ = true;
  EXPECT_EQ(run({1, 256, 16}, 5), 6);  // the second time for the capture, too
  refuses_captures_ = false;
  EXPECT_EQ(run({1, 256, 16}, 3), 3);  // and that is not tried again
  refuses_launches_ = true;
  EXPECT_EQ(run({2, 256, 32}, 5), 6);
  refuses_launches_ = false;
  EXPECT_EQ(run({2, 256, 32}, 3), 3);
  EXPECT_EQ(num_graphs_, 0);
  EXPECT_EQ(run({4, 256, 64}, 5), 3);  // others have theirs
}

TEST_F(DecodeGraphsTest, ALostDeviceIsNotTakenForAMissingGraph) {
  kind_ = Kind::kSticky;
  refuses_captures_ = true;
  EXPECT_EQ(run({1, 256, 16}, 1), 1);
  EXPECT_THROW(run({1, 256, 16}, 1), kernels::DeviceError);
}

TEST_F(DecodeGraphsTest, TheLeastRecentlyUsedGoes) {
  for (int splits = 1; splits <= 3 * kGraphsMax; ++splits) {
    run({1, splits * kAttentionSplit, 16 * splits}, 3);
    EXPECT_LE(num_graphs_, MappedMemory::kTurns * kGraphsMax);
    EXPECT_LE(run({2, 256, 32}, 2), splits <= 2 ? 2 : 0);  // used all the time: it stays
  }
  EXPECT_EQ(num_graphs_, MappedMemory::kTurns * kGraphsMax);
  graphs_.reset();
  EXPECT_EQ(num_graphs_, 0);
}

}  // namespace
}  // namespace lmtp::agent

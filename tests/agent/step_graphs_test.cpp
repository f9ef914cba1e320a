#include "step_graphs.h"

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
#include "usual_steps.h"

namespace lmtp::agent {
namespace {

using kernels::kAttentionSplit;

int blocks_of(int context) { return (context + kBlockSize - 1) / kBlockSize; }

TEST(StepShapeTest, HoldsTheStepWithItsPadding) {
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
    const StepShape shape = decode_shape(num_rows, rows_max, context_max, num_blocks);
    EXPECT_GE(shape.num_rows, num_rows);
    EXPECT_GE(shape.context_max, context_max);
    EXPECT_GE(shape.num_table_blocks, num_blocks + shape.num_rows - num_rows);
    EXPECT_LT(shape.num_rows, 2 * num_rows);
    EXPECT_LE(shape.num_rows, rows_max);
    EXPECT_LE(shape.num_table_blocks, shape.num_rows * blocks_of(shape.context_max));
  }
}

// A graph each: as many as there are powers of two of its splits.
TEST(StepShapeTest, OneStreamGoesThroughFewShapes) {
  std::set<StepShape> shapes;
  for (int context = 1; context <= 64 * kAttentionSplit; ++context) {
    shapes.insert(decode_shape(1, BatchLimits::kSequencesMax, context, blocks_of(context)));
  }
  EXPECT_EQ(shapes.size(), 7U);
}

TEST(StepShapeTest, ALongStreamAmongShortOnesIsNotTakenForManyLongOnes) {
  constexpr int kLongest = 1 << 17;
  const StepShape shape = decode_shape(256, 256, kLongest, 255 + blocks_of(kLongest));
  EXPECT_EQ(shape.context_max, kLongest);
  EXPECT_LE(shape.num_table_blocks, 2 * (255 + blocks_of(kLongest)));
}

TEST(PromptShapeTest, HoldsTheStepWithItsPadding) {
  std::mt19937 generator(7);
  const auto up_to = [&](int most) {
    return std::uniform_int_distribution<int>(1, most)(generator);
  };
  for (int i = 0; i < 2000; ++i) {
    const ShapeLimits limits = {.tokens_max = up_to(kGraphTokensMax),
                                .rows_max = up_to(BatchLimits::kSequencesMax),
                                .num_blocks = up_to(4096)};
    StepShape sizes;
    sizes.num_tokens = up_to(limits.tokens_max);
    sizes.num_rows = up_to(std::min(limits.rows_max, sizes.num_tokens));
    sizes.chunk_max = up_to(sizes.num_tokens - sizes.num_rows + 1);
    sizes.num_logits = up_to(std::min(limits.rows_max, sizes.num_tokens) + 1) - 1;
    sizes.context_max = up_to(8192);
    sizes.num_table_blocks = up_to(sizes.num_rows * blocks_of(sizes.context_max));
    const StepShape shape = prompt_shape(sizes, limits);
    EXPECT_GE(shape.num_tokens, sizes.num_tokens);
    EXPECT_LE(shape.num_tokens, limits.tokens_max);
    EXPECT_LE(shape.num_tokens, std::max(32, sizes.num_tokens * 3 / 2));
    EXPECT_GE(shape.chunk_max, sizes.chunk_max);
    EXPECT_LE(shape.chunk_max, shape.num_tokens);
    EXPECT_GE(shape.num_rows, sizes.num_rows);
    EXPECT_LE(shape.num_rows, limits.rows_max);
    EXPECT_GE(shape.num_logits, sizes.num_logits);
    EXPECT_LE(shape.num_logits, limits.rows_max);
    EXPECT_EQ(shape.num_logits == 0, sizes.num_logits == 0);
    EXPECT_GE(shape.context_max, sizes.context_max);
    EXPECT_GE(shape.num_table_blocks, sizes.num_table_blocks);
    EXPECT_GE(shape.num_table_blocks, shape.num_rows);
    EXPECT_LE(shape.num_table_blocks,
              std::max(sizes.num_table_blocks, limits.num_blocks + shape.num_rows));
  }
}

// Of one prompt each, with and without logits.
TEST(PromptShapeTest, ShortPromptsHaveFewShapes) {
  std::set<StepShape> shapes;
  for (int num_tokens = 1; num_tokens <= kGraphTokensMax; ++num_tokens) {
    for (const int num_logits : {0, 1}) {
      shapes.insert(prompt_shape({.num_rows = 1,
                                  .context_max = num_tokens,
                                  .num_table_blocks = blocks_of(num_tokens),
                                  .num_tokens = num_tokens,
                                  .chunk_max = num_tokens,
                                  .num_logits = num_logits},
                                 {.tokens_max = 512, .rows_max = 256, .num_blocks = 1000}));
    }
  }
  EXPECT_EQ(shapes.size(), 2U * 8);
}

TEST(UsualStepsTest, AreOfDifferentShapesWithinTheLimits) {
  for (const int context_length : {8, 100, 300, 2048}) {
    for (const int rows_max : {1, 6, 256}) {
      BatchLimits batch;
      batch.max_sequences = rows_max;
      std::set<StepShape> shapes;
      const auto plans = usual_steps(batch, context_length);
      for (const scheduler::StepPlan& plan : plans) {
        const int tokens = plan.rows[0].num_tokens;
        const int context = plan.rows[0].first_position + tokens;
        const auto num_rows = static_cast<int>(plan.rows.size());
        EXPECT_LE(context, context_length);
        EXPECT_LE(num_rows, rows_max);
        const StepShape sizes = {.num_rows = num_rows,
                                 .context_max = context,
                                 .num_table_blocks = num_rows * blocks_of(context),
                                 .num_tokens = tokens,
                                 .chunk_max = tokens,
                                 .num_logits = num_rows};
        StepShape shape = tokens == 1
                              ? decode_shape(num_rows, rows_max, context, sizes.num_table_blocks)
                              : prompt_shape(sizes, {batch.max_tokens, rows_max, 1000});
        shape.chooses = tokens == 1 && !plan.waits_for_masks;
        shapes.insert(shape);
      }
      EXPECT_EQ(shapes.size(), plans.size());
      const auto num_decodes = std::ranges::count_if(
          plans, [](const auto& plan) { return plan.rows[0].num_tokens == 1; });
      EXPECT_LE(std::ssize(plans) + (MappedMemory::kTurns - 1) * num_decodes, kGraphsMax / 2)
          << "others have place, too";
      EXPECT_GE(plans.size(), 2U);
    }
  }
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
class StepGraphsTest : public ::testing::Test {
 protected:
  using Kind = kernels::DeviceError::Kind;

  StepGraphsTest() : pool_(1) {
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
  int run(const StepShape& shape, int times, int num_turns = MappedMemory::kTurns) {
    int num_calls = 0;
    for (int i = 0; i < times; ++i) {
      graphs_->run(shape, i % num_turns, 0, [&] { ++num_calls; });
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
  std::optional<StepGraphs> graphs_;
};
StepGraphsTest::Kind StepGraphsTest::kind_;
int StepGraphsTest::num_graphs_;
bool StepGraphsTest::refuses_captures_;
bool StepGraphsTest::refuses_launches_;

TEST_F(StepGraphsTest, AShapeRunsOnceIsCapturedOnceATurnAndIsAGraphThen) {
  EXPECT_EQ(run({1, 256, 16}, 6), 3);
  EXPECT_EQ(num_graphs_, 2);
  EXPECT_EQ(run({.num_rows = 1, .context_max = 256, .num_table_blocks = 16, .chooses = true}, 6),
            3);
  EXPECT_EQ(num_graphs_, 4);
  EXPECT_EQ(graphs_->num_graphs(), 4);
  EXPECT_EQ(
      run({.num_rows = 1, .context_max = 256, .num_table_blocks = 16, .num_tokens = 16}, 6, 1), 2);
  EXPECT_EQ(num_graphs_, 5);
}

TEST_F(StepGraphsTest, WhereNoGraphCanBeHadStepsRunWithout) {
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

TEST_F(StepGraphsTest, ALostDeviceIsNotTakenForAMissingGraph) {
  kind_ = Kind::kSticky;
  refuses_captures_ = true;
  EXPECT_EQ(run({1, 256, 16}, 1), 1);
  EXPECT_THROW(run({1, 256, 16}, 1), kernels::DeviceError);
}

TEST_F(StepGraphsTest, TheLeastRecentlyUsedGoes) {
  for (int splits = 1; splits <= 2 * kGraphsMax; ++splits) {
    run({1, splits * kAttentionSplit, 16 * splits}, 3);
    EXPECT_LE(num_graphs_, kGraphsMax);
    EXPECT_LE(run({2, 256, 32}, 2), splits <= 2 ? 2 : 0);  // used all the time: it stays
  }
  EXPECT_EQ(num_graphs_, kGraphsMax);
  graphs_.reset();
  EXPECT_EQ(num_graphs_, 0);
}

// Those take no graph from another, and of too many the oldest is forgotten.
TEST_F(StepGraphsTest, ShapesThatComeOnceHaveNone) {
  run({2, 256, 32}, 3);
  for (int splits = 1; splits <= kShapesMax; ++splits) run({1, splits * kAttentionSplit, 16}, 1);
  EXPECT_EQ(num_graphs_, 2);
  EXPECT_EQ(run({2, 256, 32}, 2), 0);
  run({1, kShapesMax * kAttentionSplit, 16}, 1);
  EXPECT_EQ(num_graphs_, 3);
  run({1, kAttentionSplit, 16}, 1);
  EXPECT_EQ(num_graphs_, 3);
}

}  // namespace
}  // namespace lmtp::agent

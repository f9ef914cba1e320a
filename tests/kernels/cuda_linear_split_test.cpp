// The linear by tiles where several blocks share the slices of an output: the bits of one block,
// whoever is done last.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda/linear_narrow.h"
#include "cuda/narrow_weight.h"
#include "cuda_linear_data.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "narrow_weights.h"

namespace lmtp {
namespace {

namespace cuda = kernels::cuda;
using cuda::LinearKernel;
using kernels::Activation;
using kernels::ElementType;
using kernels::WeightType;
using testing::Bytes;
using testing::expect_same_bits;
using testing::kTiledKernels;

constexpr int kH100 = 132;  // multiprocessors, as an H200
constexpr int kA100 = 108;

class CudaLinearSplitTest : public ::testing::Test {
 protected:
  void TearDown() override {
    testing::set_thread_order(0);
    testing::set_num_multiprocessors(1);
  }
};

cuda::TiledProblem problem_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {.m = m, .n = n, .k_tiles = cuda::num_tiles(k), .slices = cuda::slices_of(n, k)};
}
cuda::TiledProblem int8_problem_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  const std::int64_t tiles = cuda::num_byte_tiles(k);
  return {.m = m,
          .n = n,
          .k_tiles = tiles,
          .slices = cuda::slices_of(n, tiles * cuda::kTileSide),
          .is_exact = true};
}

// Memory for a plan: partials without numbers, and counters that are to be zero behind a launch.
struct Split {
  explicit Split(const cuda::TiledPlan& plan)
      : partials(plan.bytes.partials / sizeof(float) + 4, NAN),
        counters(plan.bytes.counters / sizeof(std::uint32_t) + 1) {}

  cuda::SplitMemory memory() { return {.partials = partials.data(), .counters = counters.data()}; }
  void expect_zeros() const {
    EXPECT_TRUE(
        std::all_of(counters.begin(), counters.end(), [](auto count) { return count == 0; }));
  }

  std::vector<float> partials;
  std::vector<std::uint32_t> counters;
};

// Launches twice, with the same counters.
template <typename Launch>
void expect_split(const cuda::TiledPlan& plan, cuda::LinearLaunch args,
                  const std::vector<float>& expected, std::vector<float>& y, const Launch& launch) {
  Split split(plan);
  args.split = split.memory();
  args.splits = plan.splits;
  for (int turn = 0; turn < 2; ++turn) {
    std::fill(y.begin(), y.end(), NAN);
    (void)testing::take_num_launches();
    launch(args);
    EXPECT_LE(testing::take_num_launches(), 2) << "of inputs and of products";
    expect_same_bits(y, expected);
    split.expect_zeros();
  }
}

// All splits by every kernel, in several orders of blocks and threads.
void expect_bits_of_one_block(const testing::LinearShape& shape, ElementType type,
                              std::int64_t rows, const std::vector<int>& all_splits) {
  testing::LinearData data(shape, type, rows);
  const auto expected = data.run(0, rows, Activation::kGeluTanh, LinearKernel::kTiled128x128);
  Bytes scratch(cuda::linear_scratch_bytes(type, rows, shape.k));
  std::vector<float> y(expected.size());
  cuda::LinearLaunch args = data.launch_of(0, rows, scratch.data(), y);
  args.activation = Activation::kGeluTanh;
  for (const LinearKernel kernel : kTiledKernels) {
    for (const int splits : all_splits) {
      const auto plan = cuda::tiled_plan(problem_of(rows, shape.n, shape.k), kernel, splits);
      for (const unsigned seed : {0U, 1U, 2U}) {
        SCOPED_TRACE(::testing::Message()
                     << "n " << shape.n << " k " << shape.k << " kernel "
                     << static_cast<int>(kernel) << " splits " << splits << " seed " << seed);
        testing::set_thread_order(seed);
        expect_split(plan, args, expected, y, [kernel](const cuda::LinearLaunch& launch) {
          cuda::linear(launch, nullptr, kernel);
        });
      }
    }
  }
  testing::set_thread_order(0);
  constexpr std::int64_t kStreamed = 64;
  if (rows <= kStreamed) {
    expect_same_bits(data.run(0, rows, Activation::kGeluTanh, LinearKernel::kStream), expected);
  }
}

// Of one block of outputs and rows, so that each number of blocks for its slices is seen.
TEST_F(CudaLinearSplitTest, EveryNumberOfBlocksLeavesTheBitsOfOne) {
  ASSERT_EQ(cuda::slices_of(20, 2100).count, 11);
  expect_bits_of_one_block({20, 2100}, ElementType::kBF16, 18, {2, 3, 4, 5, 6, 11});
  ASSERT_EQ(cuda::slices_of(20, 2048).count, 16);
  expect_bits_of_one_block({20, 2048}, ElementType::kF16, 9, {2, 3, 4, 6, 8, 16});
}

// Outputs and rows that end in the middle of a tile and of a block; inputs that end in the middle
// of a stage and of a slice.
TEST_F(CudaLinearSplitTest, BlocksOfSeveralOutputsAndRowsShareNoSlices) {
  expect_bits_of_one_block({133, 1030}, ElementType::kBF16, 130, {2, 6});
}

// One slice: nothing to share.
TEST_F(CudaLinearSplitTest, OneSliceIsOneBlock) {
  EXPECT_EQ(cuda::tiled_plan(problem_of(9, 40, 70), LinearKernel::kTiled64x64, 4).splits, 1);
  expect_bits_of_one_block({40, 70}, ElementType::kBF16, 9, {4});
}

TEST_F(CudaLinearSplitTest, WholeNumbersHaveTheSameSums) {
  const testing::Problem problem = {75, 4130};
  constexpr std::int64_t kRows = 70;
  const auto values =
      testing::random_floats(static_cast<std::size_t>(problem.n * problem.k), 2, 0.1F);
  const auto weight = testing::pack_floats(WeightType::kInt8, problem, values.data());
  testing::LinearData data({problem.n, problem.k}, ElementType::kBF16, kRows);
  Bytes scratch(cuda::narrow_scratch_bytes(WeightType::kInt8, kRows, problem.n, problem.k));
  std::vector<float> y(static_cast<std::size_t>(kRows * problem.n), NAN);
  cuda::LinearLaunch args = data.launch_of(0, kRows, scratch.data(), y);
  args.weight = weight.memory.data();
  cuda::int8_linear(args, nullptr, LinearKernel::kTiled64x64);
  const std::vector<float> expected = y;
  for (const LinearKernel kernel : kTiledKernels) {
    for (const int splits : {2, 3, 16}) {
      const auto plan =
          cuda::tiled_plan(int8_problem_of(kRows, problem.n, problem.k), kernel, splits);
      ASSERT_GE(plan.splits, 2);
      for (const unsigned seed : {0U, 1U}) {
        testing::set_thread_order(seed);
        expect_split(plan, args, expected, y, [kernel](const cuda::LinearLaunch& launch) {
          cuda::int8_linear(launch, nullptr, kernel);
        });
      }
    }
  }
}

// By the backend: what is reserved is enough, and counters stay zero.
TEST_F(CudaLinearSplitTest, FewBlocksOfADeviceShareOutputs) {
  constexpr std::int64_t kRows = 70;
  for (const WeightType type :
       {WeightType::kBF16, WeightType::kF16, WeightType::kInt8, WeightType::kInt4}) {
    SCOPED_TRACE(static_cast<int>(type));
    const testing::Problem problem = {64, type == WeightType::kInt8 ? 8192 : 4096};
    const auto values =
        testing::random_floats(static_cast<std::size_t>(problem.n * problem.k), 2, 0.1F);
    const auto weight = testing::pack_floats(type, problem, values.data());
    const auto x = testing::random_floats(static_cast<std::size_t>(kRows * problem.k), 1);
    const auto run = [&](kernels::Stream& stream) {
      std::vector<float> y(static_cast<std::size_t>(kRows * problem.n), NAN);
      kernels::linear(stream, {.x = kernels::make_matrix<const float>(x.data(), kRows, problem.k),
                               .weight = weight.packed,
                               .y = testing::view<float>(y, problem.n)});
      stream.synchronize();
      return y;
    };
    kernels::WorkerPool pool(1);
    kernels::Stream alone(testing::device_under_test(), pool);
    const std::vector<float> expected = run(alone);
    if (!testing::set_num_multiprocessors(kH100)) GTEST_SKIP() << "a real device has what it has";
    kernels::Stream shared(testing::device_under_test(), pool);
    const kernels::OpLimits limits = {.weight_type = type,
                                      .rows = kRows,
                                      .inputs = problem.k,
                                      .may_have_codes = type == WeightType::kInt4};
    shared.backend().reserve(shared, limits);
    const std::int64_t moves = shared.num_scratch_moves();
    const auto bytes =
        type == WeightType::kBF16 || type == WeightType::kF16
            ? cuda::linear_split_bytes(ElementType::kBF16, kRows, problem.n, problem.k)
            : cuda::narrow_split_bytes(type, kRows, problem.n, problem.k);
    ASSERT_EQ(bytes.counters, 2 * sizeof(std::uint32_t)) << "of two blocks of rows";
    for (const unsigned seed : {0U, 1U, 2U}) {
      testing::set_thread_order(seed);
      (void)testing::take_atomics_max();
      expect_same_bits(run(shared), expected);
      EXPECT_EQ(testing::take_atomics_max(), 1);
      std::vector<std::uint32_t> counters(2, 7);
      testing::copy_to_host(counters.data(), shared.counters(0), bytes.counters);
      EXPECT_EQ(counters, std::vector<std::uint32_t>(2, 0));
    }
    EXPECT_EQ(shared.num_scratch_moves(), moves) << "graphs would be dropped";
    testing::set_thread_order(0);
    testing::set_num_multiprocessors(1);
  }
}

// ---- plans ----

// What docs/kernels.md says of bf16: blocks, of which so many share an output, and KiB of partials.
TEST(CudaTiledPlanTest, FewBlocksOfLongInputsShareOutputs) {
  struct Case {
    int multiprocessors;
    std::int64_t m;
    std::int64_t n;
    std::int64_t k;
    std::int64_t num_blocks;
    int splits;
    std::size_t partial_kib;
  };
  for (const Case& expected : {
           // GPT-2 medium's attention output and proj.
           Case{kA100, 64, 1024, 1024, 16, 1, 0},
           Case{kA100, 128, 1024, 1024, 32, 1, 0},
           Case{kA100, 256, 1024, 1024, 64, 1, 0},
           Case{kH100, 64, 1024, 1024, 16, 1, 0},
           Case{kH100, 128, 1024, 1024, 32, 1, 0},
           Case{kH100, 256, 1024, 1024, 64, 1, 0},
           Case{kA100, 64, 1024, 4096, 48, 3, 2816},
           Case{kA100, 128, 1024, 4096, 32, 1, 0},
           Case{kA100, 256, 1024, 4096, 64, 1, 0},
           Case{kH100, 64, 1024, 4096, 64, 4, 3072},
           Case{kH100, 128, 1024, 4096, 32, 1, 0},
           Case{kH100, 256, 1024, 4096, 64, 1, 0},
           // Llama-3-8B's.
           Case{kA100, 64, 4096, 4096, 64, 1, 0},
           Case{kA100, 128, 4096, 4096, 64, 1, 0},
           Case{kA100, 256, 4096, 4096, 64, 1, 0},
           Case{kH100, 64, 4096, 4096, 64, 1, 0},
           Case{kH100, 128, 4096, 4096, 64, 1, 0},
           Case{kH100, 256, 4096, 4096, 128, 1, 0},
           Case{kA100, 64, 4096, 14336, 64, 2, 5120},
           Case{kA100, 128, 4096, 14336, 96, 3, 12288},
           Case{kA100, 256, 4096, 14336, 64, 1, 0},
           Case{kH100, 64, 4096, 14336, 96, 3, 6144},
           Case{kH100, 128, 4096, 14336, 128, 4, 14336},
           Case{kH100, 256, 4096, 14336, 128, 2, 16384},
       }) {
    SCOPED_TRACE(::testing::Message()
                 << expected.multiprocessors << " multiprocessors, " << expected.m << " rows by "
                 << expected.n << "x" << expected.k);
    const auto plan = cuda::tiled_plan_for(problem_of(expected.m, expected.n, expected.k),
                                           expected.multiprocessors, true);
    EXPECT_EQ(plan.num_blocks, expected.num_blocks);
    EXPECT_EQ(plan.splits, expected.splits);
    EXPECT_EQ(plan.bytes.partials >> 10, expected.partial_kib);
  }
}

TEST(CudaTiledPlanTest, AllSlicesAreTakenAndMemoryIsBounded) {
  for (const int multiprocessors : {1, 16, kA100, kH100}) {
    for (const std::int64_t m : {33, 65, 128, 300, 1000, 8192}) {
      for (const std::int64_t n : {1, 100, 1024, 4096, 14336, 50257}) {
        for (const std::int64_t k : {1, 768, 1024, 4096, 14336, 65536}) {
          for (const auto& problem : {problem_of(m, n, k), int8_problem_of(m, n, k)}) {
            const auto plan = cuda::tiled_plan_for(problem, multiprocessors, true);
            EXPECT_GE(plan.slices_each * plan.splits, problem.slices.count);
            EXPECT_LT(plan.slices_each * (plan.splits - 1), problem.slices.count);
            EXPECT_LE(plan.bytes.partials, std::size_t{cuda::kPartialBytesMax});
            EXPECT_LE(plan.bytes.counters / sizeof(std::uint32_t),
                      static_cast<std::size_t>(multiprocessors));
            if (plan.num_blocks / plan.splits >= multiprocessors) {
              EXPECT_EQ(plan.splits, 1);
            }
            EXPECT_EQ(cuda::tiled_plan_for(problem, multiprocessors, false).splits, 1);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lmtp

// The linear for a device: against the plain twin, and bit for bit over numbers of rows, kernels
// and shapes of their blocks.
#include "cuda/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "cuda/fragment_tile.h"
#include "cuda_linear_data.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "narrow_floats.h"

namespace lmtp {
namespace {

namespace cuda = kernels::cuda;
using cuda::LinearKernel;
using kernels::Activation;
using kernels::ElementType;
using testing::Bytes;
using testing::expect_rows;

constexpr ElementType kTypes[] = {ElementType::kBF16, ElementType::kF16, ElementType::kF32};
using testing::kTiledKernels;
using testing::LinearData;
using testing::LinearShape;

class CudaLinearTest : public ::testing::TestWithParam<ElementType> {
 protected:
  void TearDown() override {
    testing::set_thread_order(0);
    testing::set_backward_sums(false);
    testing::set_wgmma(false);
  }
};

std::string type_name(const ::testing::TestParamInfo<ElementType>& info) {
  return info.param == ElementType::kF32 ? "f32" : info.param == ElementType::kF16 ? "f16" : "bf16";
}

INSTANTIATE_TEST_SUITE_P(Types, CudaLinearTest, ::testing::ValuesIn(kTypes), type_name);

TEST_P(CudaLinearTest, EqualsItsPlainTwin) {
  // Neither tiles nor slices divide these; the last has several slices, the one before unaligned
  // rows of many inputs.
  for (const LinearShape& problem :
       {LinearShape{1, 1}, LinearShape{5, 3}, LinearShape{17, 16}, LinearShape{31, 50},
        LinearShape{48, 130}, LinearShape{20, 601}, LinearShape{33, 1032}}) {
    SCOPED_TRACE(::testing::Message() << "n " << problem.n << " k " << problem.k);
    LinearData data(problem, GetParam(), 19);
    for (const Activation activation : {Activation::kNone, Activation::kGeluTanh}) {
      const auto expected = data.expected(activation);
      for (const LinearKernel kernel : {LinearKernel::kBest, LinearKernel::kTiled128x128,
                                        LinearKernel::kTiled128x64, LinearKernel::kTiled64x64}) {
        const auto y = data.run(0, data.m, activation, kernel);
        for (std::size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(y[i], expected[i], 2e-4F) << "element " << i;
        }
      }
    }
  }
}

TEST_P(CudaLinearTest, ActivationsAreThoseOfThePlainTwin) {
  LinearData data({40, 32}, GetParam(), 9);
  for (const Activation activation : testing::all_activations()) {
    const auto expected = data.expected(activation);
    const auto y = data.run(0, data.m, activation);
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], expected[i], 1e-5F) << "element " << i;
    }
  }
}

TEST_P(CudaLinearTest, BitsDoNotDependOnTheNumberOfRows) {
  LinearData data({21, 150}, GetParam(), 200);
  const auto whole = data.run(0, data.m, Activation::kNone, LinearKernel::kTiled128x128);
  for (std::int64_t rows = 1; rows <= data.m; ++rows) {
    SCOPED_TRACE(rows);
    const std::int64_t first = rows % 3 == 0 ? data.m - rows : 0;
    expect_rows(data.run(first, rows, Activation::kNone), whole, first, data.n);
  }
}

TEST_P(CudaLinearTest, BothKernelsHaveTheSameOrderOfSums) {
  // Slices of several lengths, a last one that is shorter, and more warps than one a slice.
  for (const LinearShape& problem : {LinearShape{40, 700}, LinearShape{19, 1030},
                                     LinearShape{2 * 16, 256}, LinearShape{16 * 9 + 3, 513}}) {
    LinearData data(problem, GetParam(), 40);
    const auto whole = data.run(0, data.m, Activation::kSilu, LinearKernel::kTiled128x128);
    for (const std::int64_t rows : {1, 2, 7, 8, 9, 16, 17, 31, 33, 40}) {
      SCOPED_TRACE(::testing::Message() << "k " << problem.k << " rows " << rows);
      const std::int64_t first = data.m - rows;
      expect_rows(data.run(first, rows, Activation::kSilu), whole, first, data.n);
    }
  }
}

// Outputs and rows that end in the middle of a tile, of a warp and of a block; inputs that end in
// the middle of a tile, of a stage and of a slice.
TEST_P(CudaLinearTest, BlocksOfEveryShapeHaveTheSameOrderOfSums) {
  if (GetParam() == ElementType::kF32) GTEST_SKIP() << "one kernel takes all";
  constexpr std::int64_t kStreamed = 64;
  for (const LinearShape& problem : {LinearShape{1, 1}, LinearShape{61, 65}, LinearShape{128, 1024},
                                     LinearShape{133, 1030}, LinearShape{200, 79}}) {
    LinearData data(problem, GetParam(), 130);
    const auto streamed = data.run(0, kStreamed, Activation::kGeluTanh);
    const auto whole = data.run(0, data.m, Activation::kGeluTanh, LinearKernel::kTiled128x128);
    expect_rows(streamed, whole, 0, data.n);
    for (const LinearKernel kernel : kTiledKernels) {
      for (const std::int64_t rows : {1, 33, 64, 65, 128, 130}) {
        SCOPED_TRACE(::testing::Message() << "n " << problem.n << " k " << problem.k << " rows "
                                          << rows << " kernel " << static_cast<int>(kernel));
        const std::int64_t first = data.m - rows;
        expect_rows(data.run(first, rows, Activation::kGeluTanh, kernel), whole, first, data.n);
      }
    }
  }
}

// As above, by warp groups: blocks of 32, 64 and 128 rows, with one slice and with several, all in
// one block, or one or two in each of a cluster's. On the emulation one block takes all blocks of
// outputs and rows.
TEST_P(CudaLinearTest, WarpGroupsHaveTheSameOrderOfSums) {
  if (GetParam() == ElementType::kF32) GTEST_SKIP() << "one kernel takes all";
  if (!testing::set_wgmma(true)) GTEST_SKIP() << "the device has none";
  for (const LinearShape& problem :
       {LinearShape{1, 1}, LinearShape{61, 65}, LinearShape{128, 1024}, LinearShape{133, 1030},
        LinearShape{40, 2100}, LinearShape{300, 330}}) {
    LinearData data(problem, GetParam(), 145);
    const auto whole = data.run(0, data.m, Activation::kGeluTanh, LinearKernel::kTiled128x128);
    for (const LinearKernel kernel : {LinearKernel::kWgmma, LinearKernel::kWgmmaCluster,
                                      LinearKernel::kWgmmaClusterBy2, LinearKernel::kBest}) {
      for (const std::int64_t rows : {32, 33, 130}) {
        SCOPED_TRACE(::testing::Message() << "n " << problem.n << " k " << problem.k << " rows "
                                          << rows << " kernel " << static_cast<int>(kernel));
        const std::int64_t first = data.m - rows;
        expect_rows(data.run(first, rows, Activation::kGeluTanh, kernel), whole, first, data.n);
      }
    }
  }
}

// Rows so far apart that blocks of them are taken one after another.
TEST_P(CudaLinearTest, WarpGroupsGoThroughWideRowsInGroups) {
  if (GetParam() != ElementType::kBF16) GTEST_SKIP() << "one type is enough";
  if (!testing::set_wgmma(true)) GTEST_SKIP() << "the device has none";
  constexpr std::int64_t kStride = 120'000;
  constexpr std::int64_t kRows = 130;
  LinearData data({140, 70}, GetParam(), kRows);
  const auto expected = data.run(0, kRows, Activation::kNone, LinearKernel::kTiled64x64);
  const auto y = data.run(0, kRows, Activation::kNone, LinearKernel::kWgmma, kStride);
  std::vector<float> rows;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto begin = y.begin() + row * kStride;
    rows.insert(rows.end(), begin, begin + data.n);
    ASSERT_TRUE(std::all_of(begin + data.n, begin + kStride, [](float v) { return std::isnan(v); }))
        << "row " << row;
  }
  expect_rows(rows, expected, 0, data.n);
}

// Outputs beyond what one turn of all multiprocessors takes, by several blocks of rows: a block
// goes on with what others have not taken.
TEST_P(CudaLinearTest, WarpGroupsTakeTurnsOfAllMultiprocessors) {
  if (GetParam() != ElementType::kBF16) GTEST_SKIP() << "one type is enough";
  if (!testing::set_wgmma(true)) GTEST_SKIP() << "the device has none";
  for (const int count : {2, 5}) {
    const bool emulated = testing::set_num_multiprocessors(count);
    const int blocks = emulated ? 4 : testing::num_multiprocessors() + 3;
    LinearData data({128 * blocks - 5, 330}, GetParam(), 290);
    const auto expected = data.run(0, data.m, Activation::kNone, LinearKernel::kTiled128x128);
    for (const std::int64_t rows : {30, 64, 290}) {
      expect_rows(data.run(0, rows, Activation::kNone, LinearKernel::kWgmma), expected, 0, data.n);
    }
    testing::set_num_multiprocessors(1);
    if (!emulated) break;
  }
}

// A part of a device may have too few multiprocessors beside one another for a cluster.
TEST(CudaLinearClusterTest, WhereAClusterDoesNotFitOneBlockTakesItsSlices) {
  if (!testing::set_wgmma(true)) GTEST_SKIP() << "the device has none";
  if (!testing::set_cluster_max(4)) GTEST_SKIP() << "a real device has what it has";
  LinearData data({40, 2100}, ElementType::kBF16, 20);
  const auto expected = data.run(0, data.m, Activation::kNone, LinearKernel::kTiled64x64);
  for (const LinearKernel kernel : {LinearKernel::kWgmmaCluster, LinearKernel::kWgmmaClusterBy2}) {
    expect_rows(data.run(0, data.m, Activation::kNone, kernel), expected, 0, data.n);
  }
  testing::set_cluster_max(kernels::cuda::kClusterMax);
  testing::set_wgmma(false);
}

// Few rows; and several blocks of outputs and of rows, one after another, of more stages than
// shared memory has.
TEST_P(CudaLinearTest, WarpGroupsDoNotDependOnTheOrderOfThreads) {
  if (GetParam() != ElementType::kBF16) GTEST_SKIP() << "one type is enough";
  if (!testing::set_wgmma(true)) GTEST_SKIP() << "the device has none";
  for (const auto& [problem, rows] :
       {std::pair{LinearShape{40, 2100}, 40}, std::pair{LinearShape{290, 700}, 130}}) {
    LinearData data(problem, GetParam(), rows);
    const auto expected = data.run(0, data.m, Activation::kNone, LinearKernel::kTiled64x64);
    for (unsigned seed = 1; seed <= 3; ++seed) {
      testing::set_thread_order(seed);
      for (const LinearKernel kernel :
           {LinearKernel::kWgmma, LinearKernel::kWgmmaCluster, LinearKernel::kWgmmaClusterBy2}) {
        expect_rows(data.run(0, data.m, Activation::kNone, kernel), expected, 0, data.n);
      }
    }
  }
}

// Rows go by 8, 16, 32 and 64.
void expect_one_order_of_sums(const LinearShape& problem, ElementType type) {
  SCOPED_TRACE(::testing::Message() << "n " << problem.n << " k " << problem.k);
  constexpr std::int64_t kRows = 64;
  LinearData data(problem, type, kRows);
  const auto whole = data.run(0, kRows, Activation::kNone, LinearKernel::kTiled128x128);
  for (const std::int64_t rows : {1, 8, 9, 32, 33, 64}) {
    SCOPED_TRACE(rows);
    const std::int64_t first = kRows - rows;
    expect_rows(data.run(first, rows, Activation::kNone), whole, first, data.n);
  }
  constexpr std::int64_t kSamples = 50;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const std::int64_t row = i * 7 % kRows;
    const std::int64_t column = i < 8 ? data.n - 1 - i : i * (data.n / kSamples);
    ASSERT_NEAR(whole[static_cast<std::size_t>(row * data.n + column)], data.expected(row, column),
                3e-4)
        << "row " << row << " column " << column;
  }
}

// Where there are outputs enough for all multiprocessors, a warp takes two tiles of them, or four:
// those of wide layers and heads. Of one slice and of several, the last tiles of outputs missing.
TEST_P(CudaLinearTest, WarpsOfSeveralTilesHaveTheSameOrderOfSums) {
  if (GetParam() == ElementType::kF32) GTEST_SKIP() << "one kernel takes all";
  for (const std::int64_t k : {130, 700}) {
    const std::int64_t groups = k == 130 ? 8 : 2;  // of a block
    for (const std::int64_t tiles : {2, 4}) {
      const std::int64_t blocks = tiles * 2 * testing::num_multiprocessors();
      const LinearShape problem{blocks * groups * cuda::kTileSide + 5, k};
      ASSERT_EQ(cuda::slices_of(problem.n, k).count, 8 / groups);
      expect_one_order_of_sums(problem, GetParam());
    }
  }
}

TEST_P(CudaLinearTest, TheMostSlicesHaveTheSameOrderOfSums) {
  if (GetParam() == ElementType::kF32) GTEST_SKIP() << "there are no slices";
  const LinearShape problem{std::min(1024, 21 * testing::num_multiprocessors()), 4091};
  ASSERT_EQ(cuda::slices_of(problem.n, problem.k).count, cuda::kSlicesMax);
  expect_one_order_of_sums(problem, GetParam());
}

// What the tests around this one would see if one of the kernels had another order: every row.
TEST_P(CudaLinearTest, AnotherOrderOfSumsShows) {
  if (GetParam() == ElementType::kF32) return;  // its sums are not products of matrices
  LinearData data({40, 700}, GetParam(), 40);
  const auto whole = data.run(0, data.m, Activation::kNone, LinearKernel::kTiled128x128);
  if (!testing::set_backward_sums(true)) {
    GTEST_SKIP() << "the order of a real device's sums is its own";
  }
  for (const std::int64_t rows : {1, 8, 40}) {
    const auto part = data.run(0, rows, Activation::kNone);
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto first = part.begin() + row * data.n;
      EXPECT_FALSE(std::equal(first, first + data.n, whole.begin() + row * data.n)) << row;
    }
  }
}

TEST_P(CudaLinearTest, BitsDoNotDependOnTheOrderOfThreads) {
  LinearData data({150, 700}, GetParam(), 37);  // of inputs enough that stages are filled again
  const auto whole = data.run(0, data.m, Activation::kNone);
  for (const unsigned seed : {1U, 2U, 3U}) {
    testing::set_thread_order(seed);
    for (const std::int64_t rows : {1, 12, 37}) {
      expect_rows(data.run(0, rows, Activation::kNone), whole, 0, data.n);
    }
    for (const LinearKernel kernel : kTiledKernels) {
      expect_rows(data.run(0, data.m, Activation::kNone, kernel), whole, 0, data.n);
    }
  }
}

TEST_P(CudaLinearTest, ARowWithoutNumbersLeavesItsNeighboursAlone) {
  LinearData data({20, 70}, GetParam(), 12);
  const auto clean = data.run(0, data.m, Activation::kNone);
  std::fill_n(data.x.begin() + 3 * data.k, data.k, NAN);
  const auto spoiled = data.run(0, data.m, Activation::kNone);
  for (std::int64_t row = 0; row < data.m; ++row) {
    for (std::int64_t n = 0; n < data.n; ++n) {
      const auto at = static_cast<std::size_t>(row * data.n + n);
      if (row == 3) {
        ASSERT_TRUE(std::isnan(spoiled[at]));
      } else {
        ASSERT_EQ(testing::bits(spoiled[at]), testing::bits(clean[at]));
      }
    }
  }
}

// The plain twin of cuda::pack_weight.
void pack_on_host(const cuda::WeightSource& source, const cuda::WeightTarget& to) {
  const auto* data = static_cast<const unsigned char*>(source.data);
  for (std::int64_t n = 0; n < source.n; ++n) {
    const std::int64_t row = to.target_rows != nullptr ? to.target_rows[n] : to.first_row + n;
    for (std::int64_t k = 0; k < source.k; ++k) {
      const std::int64_t at = n * source.row_stride + k * source.column_stride;
      float value = 0.0F;
      kernels::convert_to_f32(data + at * element_size(source.type), source.type, 1, &value);
      if (to.type == ElementType::kF32) {
        static_cast<float*>(to.weight)[(row / 32 * source.k + k) * 32 + row % 32] = value;
      } else {
        static_cast<std::uint16_t*>(to.weight)[cuda::offset_in_matrix(row, k, source.k)] =
            to.type == ElementType::kBF16 ? testing::round_to_bf16(value)
                                          : testing::round_to_f16(value);
      }
    }
  }
}

TEST_P(CudaLinearTest, WhatTheHostPacksIsWhatTheDevicePacks) {
  constexpr std::int64_t kN = 37;
  constexpr std::int64_t kK = 53;
  const auto f32 = testing::random_floats(kN * kK, 7, 1e-4F);
  std::vector<std::uint16_t> bf16;
  std::vector<std::uint16_t> f16;
  for (const float value : f32) {
    bf16.push_back(testing::round_to_bf16(value));
    f16.push_back(testing::round_to_f16(value));
  }
  std::vector<std::int32_t> backwards(kN);
  for (std::int32_t i = 0; i < kN; ++i) {
    backwards[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(kN) - 1 - i;
  }
  const void* const data[] = {f32.data(), f16.data(), bf16.data()};
  for (const ElementType from : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
    for (const bool transposed : {false, true}) {
      for (const bool mapped : {false, true}) {
        Bytes device(cuda::weight_bytes(GetParam(), kN + 9, kK));
        Bytes host(cuda::weight_bytes(GetParam(), kN + 9, kK));
        const cuda::WeightSource source = {.data = data[static_cast<int>(from)],
                                           .type = from,
                                           .n = kN,
                                           .k = kK,
                                           .row_stride = transposed ? 1 : kK,
                                           .column_stride = transposed ? kN : 1};
        cuda::WeightTarget to = {.weight = device.data(), .type = GetParam(), .n = kN + 9};
        to.first_row = mapped ? 0 : 9;
        to.target_rows = mapped ? backwards.data() : nullptr;
        cuda::pack_weight(source, to, nullptr);
        to.weight = host.data();
        pack_on_host(source, to);
        ASSERT_EQ(std::memcmp(device.data(), host.data(), device.words.size() * 16), 0);
      }
    }
  }
}

TEST(CudaSlicesTest, CoverTheInputsAndDependOnTheShapeAlone) {
  for (const std::int64_t n : {1, 16, 1000, 1024, 4096, 14336, 50257, 128256}) {
    for (const std::int64_t k : {1, 16, 100, 768, 1024, 1030, 4096, 14336}) {
      const cuda::Slices slices = cuda::slices_of(n, k);
      const std::int64_t tiles = cuda::num_tiles(k);
      EXPECT_GE(slices.count, 1);
      EXPECT_LE(slices.count, cuda::kSlicesMax);
      EXPECT_EQ(slices.tiles % cuda::kSliceUnit, 0);
      EXPECT_GE(std::int64_t{slices.count} * slices.tiles, tiles);
      EXPECT_LT(std::int64_t{slices.count - 1} * slices.tiles, tiles) << n << " " << k;
    }
  }
}

LinearKernel tiled_kernel_for(std::int64_t m, std::int64_t n, int num_multiprocessors) {
  constexpr std::int64_t kInputs = 1024;
  const cuda::TiledProblem problem = {
      .m = m, .n = n, .k_tiles = cuda::num_tiles(kInputs), .slices = cuda::slices_of(n, kInputs)};
  return cuda::tiled_plan_for(problem, num_multiprocessors, true).kernel;
}

// On a device of 132 multiprocessors, as an H100 or H200. GPT-2 medium's linears have
// 1,024, 3,072 and 4,096 outputs, its head 50,257.
TEST(CudaTiledKernelTest, IsTheLargestThatKeepsTheDeviceBusy) {
  struct Case {
    std::int64_t m;
    std::int64_t n;
    LinearKernel kernel;
  };
  for (const Case& expected :
       {Case{65, 1024, LinearKernel::kTiled64x64}, Case{128, 1024, LinearKernel::kTiled64x64},
        Case{128, 4096, LinearKernel::kTiled128x64}, Case{256, 1024, LinearKernel::kTiled64x64},
        Case{256, 3072, LinearKernel::kTiled128x64}, Case{256, 4096, LinearKernel::kTiled128x64},
        Case{256, 50257, LinearKernel::kTiled128x128}, Case{512, 1024, LinearKernel::kTiled128x64},
        Case{512, 4096, LinearKernel::kTiled128x128}, Case{2048, 1024, LinearKernel::kTiled128x128},
        Case{2048, 14336, LinearKernel::kTiled128x128}}) {
    EXPECT_EQ(tiled_kernel_for(expected.m, expected.n, 132), expected.kernel)
        << "m " << expected.m << " n " << expected.n;
  }
}

// A device with fewer multiprocessors is busy with larger blocks.
TEST(CudaTiledKernelTest, DependsOnTheDevice) {
  EXPECT_EQ(tiled_kernel_for(256, 4096, 132), LinearKernel::kTiled128x64);
  EXPECT_EQ(tiled_kernel_for(256, 4096, 64), LinearKernel::kTiled128x128);
  EXPECT_EQ(tiled_kernel_for(256, 4096, 1000), LinearKernel::kTiled64x64);
}

}  // namespace
}  // namespace lmtp

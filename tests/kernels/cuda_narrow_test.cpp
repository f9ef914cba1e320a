// The linears for a device of weights of 8 bits and less: int8 bit for bit against the CPU's
// kernels, codes by groups bit for bit against the device's product of what they stand for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "cuda/fragment_tile.h"
#include "cuda/linear_narrow.h"
#include "cuda/narrow_weight.h"
#include "cuda_linear_data.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "narrow_weights.h"

namespace lmtp {
namespace {

using testing::device_under_test;
namespace cuda = kernels::cuda;
using cuda::LinearKernel;
using kernels::Activation;
using kernels::CodeType;
using kernels::ElementType;
using kernels::Grouping;
using kernels::Stream;
using kernels::WeightType;
using kernels::WorkerPool;
using testing::Codes;
using testing::DeviceWeight;
using testing::pack_codes;
using testing::pack_floats;
using testing::Problem;

// Rows that each number of kernels' rows takes, and those of blocks.
constexpr std::int64_t kRowCounts[] = {1, 2, 7, 8, 9, 16, 17, 31, 33, 64, 65, 130};
constexpr std::int64_t kRowsMax = 130;
using testing::Bytes;
using testing::kTiledKernels;

// What a product takes beside its weight.
struct Inputs {
  explicit Inputs(const Problem& problem)
      : n(problem.n),
        k(problem.k),
        x(testing::random_floats(static_cast<std::size_t>(kRowsMax * k), 1)),
        bias(testing::random_floats(static_cast<std::size_t>(n), 3)),
        residual(testing::random_floats(static_cast<std::size_t>(kRowsMax * n), 4)) {
    // A row of zeros has a scale of 0, one of a single number the finest.
    std::fill_n(x.begin() + k, k, 0.0F);
    std::fill_n(x.begin() + 3 * k, k - 1, 0.0F);
  }

  // The rows [first, first + rows) by any backend.
  std::vector<float> run(const kernels::Backend& backend, const kernels::PackedLinear& weight,
                         std::int64_t first, std::int64_t rows, Activation activation) {
    WorkerPool pool(1);
    Stream stream(backend, pool);
    std::vector<float> y(static_cast<std::size_t>(rows * n), NAN);
    kernels::linear(stream, {.x = kernels::make_matrix<const float>(x.data() + first * k, rows, k),
                             .weight = weight,
                             .bias = bias.data(),
                             .activation = activation,
                             .scale = 0.7F,
                             .residual = kernels::make_matrix<const float>(
                                 residual.data() + first * n, rows, n),
                             .y = kernels::make_matrix(y.data(), rows, n)});
    stream.synchronize();
    return y;
  }

  cuda::LinearLaunch launch(std::int64_t first, std::int64_t rows, const void* weight,
                            ElementType type, void* scratch, std::vector<float>& y) const {
    return {.x = x.data() + first * k,
            .x_stride = k,
            .m = rows,
            .weight = weight,
            .type = type,
            .n = n,
            .k = k,
            .bias = bias.data(),
            .scale = 0.7F,
            .residual = residual.data() + first * n,
            .residual_stride = n,
            .y = y.data(),
            .y_stride = n,
            .scratch = scratch};
  }

  std::int64_t n;
  std::int64_t k;
  std::vector<float> x;
  std::vector<float> bias;
  std::vector<float> residual;
};

class CudaNarrowTest : public ::testing::Test {
 protected:
  void TearDown() override {
    testing::set_wgmma(false);
    testing::set_thread_order(0);
    testing::set_backward_sums(false);
  }
};

// ---- int8 ----

// The rows by one of the kernels for many.
std::vector<float> run_tiled(const Inputs& inputs, const DeviceWeight& weight, std::int64_t first,
                             std::int64_t rows, LinearKernel kernel) {
  Bytes scratch(cuda::narrow_scratch_bytes(WeightType::kInt8, rows, inputs.n, inputs.k));
  std::vector<float> y(static_cast<std::size_t>(rows * inputs.n), NAN);
  cuda::narrow_linear(
      inputs.launch(first, rows, weight.memory.data(), ElementType::kBF16, scratch.data(), y),
      WeightType::kInt8, {}, nullptr, kernel);
  return y;
}

// Every number of rows by its own kernel, and blocks of every shape, against every set of the CPU's
// kernels. Other activations are functions of each backend's own.
void expect_bits_of_cpu(Inputs& inputs, const DeviceWeight& weight,
                        const testing::PackedOnHost& on_host) {
  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    std::vector<float> expected;
    for (const kernels::Backend* backend : kernels::cpu_backends()) {
      const auto y = inputs.run(*backend, on_host.weight, 0, kRowsMax, activation);
      if (!expected.empty()) testing::expect_same_bits(y, expected);
      expected = y;
    }
    for (const std::int64_t rows : kRowCounts) {
      SCOPED_TRACE(::testing::Message() << rows << " rows");
      const std::int64_t first = rows % 2 == 0 ? 0 : kRowsMax - rows;
      testing::expect_rows(inputs.run(device_under_test(), weight.packed, first, rows, activation),
                           expected, first, inputs.n);
    }
    if (activation != Activation::kNone) continue;
    for (const LinearKernel kernel : kTiledKernels) {
      for (const std::int64_t rows : {1, 33, 130}) {
        testing::expect_rows(run_tiled(inputs, weight, kRowsMax - rows, rows, kernel), expected,
                             kRowsMax - rows, inputs.n);
      }
    }
  }
}

TEST_F(CudaNarrowTest, Int8OfFloatsGivesTheBitsOfTheCpu) {
  // Neither tiles of 16 outputs nor of 32 inputs divide these; the last has the most slices.
  for (const Problem& problem : {Problem{1, 1}, Problem{5, 3}, Problem{17, 32}, Problem{75, 172},
                                 Problem{48, 601}, Problem{20, 4130}}) {
    SCOPED_TRACE(::testing::Message() << "n " << problem.n << " k " << problem.k);
    const auto values =
        testing::random_floats(static_cast<std::size_t>(problem.n * problem.k), 2, 0.1F);
    const auto on_host =
        testing::pack_floats_on_host(WeightType::kInt8, problem.n, problem.k, {}, values);
    Inputs inputs(problem);
    expect_bits_of_cpu(inputs, pack_floats(WeightType::kInt8, problem, values.data()), on_host);
  }
}

TEST_F(CudaNarrowTest, Int8OfACheckpointGivesTheBitsOfTheCpu) {
  const Problem problem = {75, 172};
  const Grouping by = {
      .codes = CodeType::kInt8, .group = testing::kWhole, .scales = ElementType::kF32};
  Codes codes(problem.n, problem.k, by);
  codes.code(3, 5) = 128;  // -128
  const auto on_host =
      testing::pack_codes_on_host(WeightType::kInt8, problem.n, problem.k, by, codes);
  Inputs inputs(problem);
  expect_bits_of_cpu(inputs, pack_codes(WeightType::kInt8, problem, by, codes), on_host);
}

TEST_F(CudaNarrowTest, Int8HasTheSameBitsInEveryOrderOfThreads) {
  const Problem problem = {150, 700};
  const auto values =
      testing::random_floats(static_cast<std::size_t>(problem.n * problem.k), 2, 0.1F);
  const DeviceWeight weight = pack_floats(WeightType::kInt8, problem, values.data());
  Inputs inputs(problem);
  const auto whole = inputs.run(device_under_test(), weight.packed, 0, kRowsMax, Activation::kNone);
  for (const unsigned seed : {1U, 2U}) {
    testing::set_thread_order(seed);
    for (const std::int64_t rows : {1, 12, 37, 130}) {
      testing::expect_rows(
          inputs.run(device_under_test(), weight.packed, 0, rows, Activation::kNone), whole, 0,
          problem.n);
    }
  }
}

// Of the most inputs that a sum of 32 bits is for, each product the largest.
TEST_F(CudaNarrowTest, Int8SumsOfTheMostInputsAreExact) {
  const Problem problem = {3, 1 << 16};
  std::vector<float> values(static_cast<std::size_t>(problem.n * problem.k), 0.5F);
  std::fill_n(values.begin() + problem.k, problem.k, -0.5F);
  const auto on_host =
      testing::pack_floats_on_host(WeightType::kInt8, problem.n, problem.k, {}, values);
  const DeviceWeight weight = pack_floats(WeightType::kInt8, problem, values.data());
  WorkerPool pool(1);
  std::vector<float> x(static_cast<std::size_t>(2 * problem.k), 3.0F);
  const auto multiply = [&](const kernels::Backend& backend, const kernels::PackedLinear& packed) {
    Stream stream(backend, pool);
    std::vector<float> y(static_cast<std::size_t>(2 * problem.n), NAN);
    kernels::linear(stream, {.x = testing::view<const float>(x, problem.k),
                             .weight = packed,
                             .y = testing::view<float>(y, problem.n)});
    stream.synchronize();
    return y;
  };
  const auto y = multiply(device_under_test(), weight.packed);
  testing::expect_same_bits(y, multiply(kernels::cpu_backend(), on_host.weight));
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_NEAR(y[i], (i % 3 == 1 ? -1.5F : 1.5F) * 65536.0F, 1.0F);
  }
}

// Warps of several tiles of outputs, where there are outputs enough for all multiprocessors.
TEST_F(CudaNarrowTest, Int8OfManyOutputsGivesTheBitsOfTheCpu) {
  const Problem problem = {8 * 8 * testing::num_multiprocessors() * cuda::kTileSide + 5, 70};
  const auto values =
      testing::random_floats(static_cast<std::size_t>(problem.n * problem.k), 2, 0.1F);
  const auto on_host =
      testing::pack_floats_on_host(WeightType::kInt8, problem.n, problem.k, {}, values);
  const DeviceWeight weight = pack_floats(WeightType::kInt8, problem, values.data());
  Inputs inputs(problem);
  const auto expected =
      inputs.run(kernels::cpu_backend(), on_host.weight, 0, 33, Activation::kNone);
  for (const std::int64_t rows : {1, 9, 33}) {
    testing::expect_rows(inputs.run(device_under_test(), weight.packed, 0, rows, Activation::kNone),
                         expected, 0, problem.n);
  }
}

// ---- by groups ----

constexpr ElementType kWidenedTo[] = {ElementType::kBF16, ElementType::kF16};

// The numbers that codes stand for, as a device's plain weight.
struct PlainTwin {
  PlainTwin(const Problem& problem, ElementType to, const kernels::PackedLinear& on_host)
      : n(problem.n), k(problem.k), type(to), memory(cuda::weight_bytes(to, n, k)) {
    std::vector<float> numbers;
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t i = 0; i < k; ++i) {
        numbers.push_back(kernels::packed_element(on_host, row, i));
      }
    }
    cuda::pack_weight({.data = numbers.data(), .n = n, .k = k, .row_stride = k},
                      {.weight = memory.data(), .type = type, .n = n}, nullptr);
  }

  std::vector<float> run(const Inputs& inputs, LinearKernel kernel = LinearKernel::kBest) {
    Bytes scratch(cuda::linear_scratch_bytes(type, kRowsMax, k));
    std::vector<float> y(static_cast<std::size_t>(kRowsMax * n), NAN);
    cuda::linear(inputs.launch(0, kRowsMax, memory.data(), type, scratch.data(), y), nullptr,
                 kernel);
    return y;
  }

  std::int64_t n;
  std::int64_t k;
  ElementType type;
  Bytes memory;
};

// Of each kernel for few rows and for many, and of all its shapes of blocks.
constexpr std::int64_t kRowsOfKernels[] = {1, 9, 33, 130};
constexpr std::int64_t kRowsOfShapes[] = {1, 8, 9, 32, 33, 64, 130};

void expect_bits_of_twin(const Problem& problem, WeightType type, Grouping by, ElementType to,
                         Codes& codes, std::span<const std::int64_t> rows_of = kRowsOfKernels) {
  by.widened_to = to;
  const auto on_host = testing::pack_codes_on_host(type, problem.n, problem.k, by, codes);
  const DeviceWeight weight = pack_codes(type, problem, by, codes);
  Inputs inputs(problem);
  const auto expected = PlainTwin(problem, to, on_host.weight).run(inputs);
  for (const bool wgmma : {false, true}) {
    if (!testing::set_wgmma(wgmma) && wgmma) continue;
    for (const std::int64_t rows : rows_of) {
      if (wgmma && rows < 33) continue;  // the same kernels
      SCOPED_TRACE(::testing::Message() << rows << " rows, warp groups " << wgmma);
      const std::int64_t first = rows % 2 == 0 ? 0 : kRowsMax - rows;
      testing::expect_rows(
          inputs.run(device_under_test(), weight.packed, first, rows, Activation::kNone), expected,
          first, problem.n);
    }
  }
  testing::set_wgmma(false);
}

void expect_bits_of_twin(const Problem& problem, WeightType type, const Grouping& by,
                         ElementType to, std::span<const std::int64_t> rows_of = kRowsOfKernels) {
  Codes codes(problem.n, problem.k, by);
  expect_bits_of_twin(problem, type, by, to, codes, rows_of);
}

// Every code with scales of every magnitude that leaves sums finite.
TEST_F(CudaNarrowTest, EveryCodeByExtremeScalesGivesTheBitsOfItsNumber) {
  const Problem problem = {16, 272};
  const float wide[] = {0.0F, 0x1p-133F, -0x1.8p-130F, 0x1p-126F, 0x1.7p100F, -0x1p90F, 1.0F};
  const float narrow[] = {0.0F, 0x1p-24F, -0x1.8p-20F, 0x1p-14F, 0x1.7p6F, -0x1p5F, 1.0F};
  for (const CodeType code_type :
       {CodeType::kInt4, CodeType::kInt8, CodeType::kE4M3, CodeType::kE2M1}) {
    for (const ElementType to : kWidenedTo) {
      for (const ElementType scales : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
        for (const bool has_offsets : {false, true}) {
          const Grouping by = {code_type, has_offsets ? 16 : 48, scales, has_offsets, to};
          SCOPED_TRACE(::testing::Message()
                       << "codes " << static_cast<int>(code_type) << " scales "
                       << static_cast<int>(scales) << (has_offsets ? " with offsets" : "") << " to "
                       << static_cast<int>(to));
          const bool is_narrow = to == ElementType::kF16 || scales == ElementType::kF16;
          Codes codes(problem.n, problem.k, by);
          for (std::int64_t n = 0; n < problem.n; ++n) {
            for (std::int64_t i = 0; i < problem.k; ++i) {
              const auto code = static_cast<std::uint8_t>((i + n) % 256);
              const bool is_nan = code_type == CodeType::kE4M3 && (code & 127) == 127;
              codes.code(n, i) = is_nan ? 0 : code % (1 << kernels::code_bits(code_type));
            }
            for (std::int64_t group = 0; group < kernels::num_groups(by, problem.k); ++group) {
              codes.scale(n, group) = (is_narrow ? narrow : wide)[(n + group) % 7];
            }
          }
          expect_bits_of_twin(problem, WeightType::kWidened, by, to, codes);
        }
      }
    }
  }
}

TEST_F(CudaNarrowTest, GroupsOfTilesAreFoundWithoutADivision) {
  for (const int tiles : {1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 100, 1000, 4095, 32768}) {
    cuda::GroupedWeight by;
    by.group_factor = cuda::group_factor(tiles);
    for (int tile = 0; tile < 1 << 16; ++tile) ASSERT_EQ(by.group_of(tile), tile / tiles) << tile;
  }
}

TEST_F(CudaNarrowTest, WidenedCodesGiveTheBitsOfTheirNumbers) {
  // Of 16 inputs a tile: rows of whole tiles, which are read as they are, and others.
  for (const Problem& problem : {Problem{1, 1}, Problem{75, 40}, Problem{33, 704}}) {
    testing::for_groupings([&](WeightType type, const Grouping& by) {
      SCOPED_TRACE(::testing::Message() << "n " << problem.n << " k " << problem.k);
      expect_bits_of_twin(problem, type, by,
                          by.group == 32 ? ElementType::kF16 : ElementType::kBF16, kRowsOfShapes);
    });
  }
}

TEST_F(CudaNarrowTest, GroupsOfManySlicesGiveTheBitsOfTheirNumbers) {
  const Problem problem = {20, 4130};
  for (const ElementType to : kWidenedTo) {
    expect_bits_of_twin(problem, WeightType::kInt4, {}, to);
    expect_bits_of_twin(problem, WeightType::kWidened,
                        {CodeType::kE4M3, testing::kWhole, ElementType::kF32, false}, to);
    expect_bits_of_twin(problem, WeightType::kWidened,
                        {CodeType::kInt8, 48, ElementType::kF16, true}, to);
  }
}

// Many rows: some outputs of a weight are widened after others, each where those before it were.
TEST_F(CudaNarrowTest, WeightsThatAreWidenedInPartsGiveTheSameBits) {
  const Problem problem = {213, 172};
  const Grouping by = {CodeType::kInt4, 64, ElementType::kF16, true};
  Codes codes(problem.n, problem.k, by);
  const auto on_host =
      testing::pack_codes_on_host(WeightType::kWidened, problem.n, problem.k, by, codes);
  const DeviceWeight weight = pack_codes(WeightType::kWidened, problem, by, codes);
  Inputs inputs(problem);
  const auto expected = PlainTwin(problem, ElementType::kBF16, on_host.weight).run(inputs);
  std::vector<LinearKernel> kernels(std::begin(kTiledKernels), std::end(kTiledKernels));
  if (testing::set_wgmma(true)) {
    kernels.insert(kernels.end(), {LinearKernel::kWgmma, LinearKernel::kWgmmaCluster,
                                   LinearKernel::kWgmmaClusterBy2});
  }
  for (const unsigned seed : {0U, 1U}) {
    testing::set_thread_order(seed);
    for (const LinearKernel kernel : kernels) {
      for (const std::int64_t outputs : {16, 64, 128, 1024}) {
        Bytes scratch(cuda::narrow_scratch_bytes(WeightType::kWidened, kRowsMax, 1024, problem.k));
        std::vector<float> y(static_cast<std::size_t>(kRowsMax * problem.n), NAN);
        cuda::grouped_linear(
            inputs.launch(0, kRowsMax, weight.memory.data(), ElementType::kBF16, scratch.data(), y),
            WeightType::kWidened, by, nullptr, kernel, outputs);
        testing::expect_same_bits(y, expected);
      }
    }
  }
}

// What the tests around this one would see of another order of sums.
TEST_F(CudaNarrowTest, AnotherOrderOfSumsShows) {
  const Problem problem = {40, 704};
  const Grouping by;
  Codes codes(problem.n, problem.k, by);
  const auto on_host =
      testing::pack_codes_on_host(WeightType::kInt4, problem.n, problem.k, by, codes);
  const DeviceWeight weight = pack_codes(WeightType::kInt4, problem, by, codes);
  Inputs inputs(problem);
  const auto expected = PlainTwin(problem, ElementType::kBF16, on_host.weight).run(inputs);
  if (!testing::set_backward_sums(true)) {
    GTEST_SKIP() << "the order of a real device's sums is its own";
  }
  for (const std::int64_t rows : {8, 40, 130}) {
    const auto y = inputs.run(device_under_test(), weight.packed, 0, rows, Activation::kNone);
    EXPECT_FALSE(std::equal(y.begin(), y.end(), expected.begin())) << rows;
  }
}

TEST_F(CudaNarrowTest, ARowWithoutNumbersLeavesItsNeighboursAlone) {
  const Problem problem = {20, 80};
  const auto values =
      testing::random_floats(static_cast<std::size_t>(problem.n * problem.k), 2, 0.1F);
  for (const WeightType type : {WeightType::kInt8, WeightType::kInt4}) {
    const DeviceWeight weight = pack_floats(type, problem, values.data());
    Inputs inputs(problem);
    const auto clean = inputs.run(device_under_test(), weight.packed, 0, 12, Activation::kNone);
    inputs.x[static_cast<std::size_t>(3 * problem.k + 7)] = NAN;
    inputs.x[static_cast<std::size_t>(5 * problem.k + 79)] = -INFINITY;
    for (const std::int64_t rows : {8, 12}) {
      const auto y = inputs.run(device_under_test(), weight.packed, 0, rows, Activation::kNone);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(problem.n);
        if (row == 3 || row == 5) {
          ASSERT_FALSE(std::isfinite(y[i])) << i;
        } else {
          ASSERT_EQ(testing::bits(y[i]), testing::bits(clean[i])) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lmtp

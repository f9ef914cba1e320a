#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "kernel_support.h"
#include "slice_rows.h"

namespace lmtp {
namespace {

using kernels::Activation;
using kernels::Stream;
using kernels::WeightType;
using kernels::WorkerPool;

// A half precision number by its definition.
float half_value(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25));
}

struct Problem {
  std::int64_t n;
  std::int64_t k;
};

// Not multiples of panels, vectors or blocks of inputs.
constexpr Problem kProblems[] = {{1, 1},   {5, 3},     {31, 17},   {33, 64},
                                 {97, 40}, {130, 700}, {257, 1030}};
constexpr std::int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 24, 25, 31, 48, 70};
constexpr std::int64_t kRowsMax = 70;

struct Data {
  explicit Data(const Problem& problem, WeightType weight_type = WeightType::kF32,
                float weight_scale = 0.1F)
      : type(weight_type),
        n(problem.n),
        k(problem.k),
        x(testing::random_floats(static_cast<std::size_t>(kRowsMax * k), 1)),
        weight(testing::random_floats(static_cast<std::size_t>(n * k), 2, weight_scale)),
        bias(testing::random_floats(static_cast<std::size_t>(n), 3)),
        residual(testing::random_floats(static_cast<std::size_t>(kRowsMax * n), 4)),
        panels(static_cast<std::size_t>(kernels::packed_size(n, k, type))),
        scales(static_cast<std::size_t>(kernels::padded_columns(n))),
        sums(scales.size()) {
    WorkerPool pool(2);
    kernels::pack_linear(
        pool, {.data = weight.data(), .n = n, .k = k},
        {.panels = panels.data(), .type = type, .scales = scales.data(), .sums = sums.data()});
  }

  // The rows [first, first + rows) through a backend, everything fused.
  std::vector<float> run(const kernels::Backend& backend, std::int64_t first, std::int64_t rows,
                         Activation activation, int num_threads) {
    WorkerPool pool(num_threads);
    Stream stream(backend, pool);
    std::vector<float> y(static_cast<std::size_t>(rows * n), NAN);
    kernels::linear(
        stream,
        {.x = testing::slice_rows(testing::view<const float>(x, k), first, rows),
         .weight = packed(),
         .bias = bias.data(),
         .activation = activation,
         .scale = 0.7F,
         .residual = testing::slice_rows(testing::view<const float>(residual, n), first, rows),
         .y = testing::view<float>(y, n)});
    return y;
  }

  // run() without bias, activation and residual, so that the last bits are compared.
  std::vector<float> run_bare(const kernels::Backend& backend, std::int64_t first,
                              std::int64_t rows) {
    WorkerPool pool(2);
    Stream stream(backend, pool);
    std::vector<float> y(static_cast<std::size_t>(rows * n), NAN);
    kernels::linear(stream,
                    {.x = testing::slice_rows(testing::view<const float>(x, k), first, rows),
                     .weight = packed(),
                     .y = testing::view<float>(y, n)});
    return y;
  }

  kernels::PackedLinear packed() const {
    return {panels.data(), n, k, type, scales.data(), sums.data()};
  }

  WeightType type;
  std::int64_t n;
  std::int64_t k;
  std::vector<float> x;
  std::vector<float> weight;
  std::vector<float> bias;
  std::vector<float> residual;
  std::vector<float> panels;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
};

constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kBF16, WeightType::kInt8};

class LinearTest : public testing::BackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, LinearTest, ::testing::ValuesIn(kernels::cpu_backends()),
                         testing::backend_name);

// Runs `check` for every problem and type.
template <typename Check>
void for_all(const Check& check) {
  for (const WeightType type : kTypes) {
    for (const Problem& problem : kProblems) {
      SCOPED_TRACE(::testing::Message() << "type " << static_cast<int>(type) << " n " << problem.n
                                        << " k " << problem.k);
      Data data(problem, type);
      check(data);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST_P(LinearTest, EqualsItsPlainTwin) {
  for_all([](Data& data) {
    for (const Activation activation : testing::all_activations()) {
      for (const std::int64_t rows : {1, 7, 30}) {
        const auto expected = data.run(kernels::reference_backend(), 0, rows, activation, 1);
        const auto y = data.run(*GetParam(), 0, rows, activation, 2);
        for (std::size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(y[i], expected[i], 3e-5F * (1.0F + std::fabs(expected[i])))
              << "rows " << rows << " element " << i;
        }
      }
    }
  });
}

TEST_P(LinearTest, BitsOfARowDependOnNothingButTheRow) {
  for_all([](Data& data) {
    const auto whole = data.run(*GetParam(), 0, kRowsMax, Activation::kGeluTanh, 1);
    for (const std::int64_t rows : kRowCounts) {
      for (const std::int64_t first : {std::int64_t{0}, kRowsMax - rows}) {
        for (const int num_threads : {1, 3}) {
          const auto part = data.run(*GetParam(), first, rows, Activation::kGeluTanh, num_threads);
          SCOPED_TRACE(rows);
          testing::expect_rows(part, whole, first, data.n);
        }
      }
    }
  });
}

// Which one is used depends on the processor: here all of them run on any.
TEST_P(LinearTest, BitsDoNotDependOnTheShape) {
  static constexpr kernels::LinearShape kShapes[] = {
      {1, 1, 16}, {3, 4, 128}, {6, 4, 128}, {12, 2, 512}};
  for_all([](Data& data) {
    const auto whole = data.run(*GetParam(), 0, kRowsMax, Activation::kGeluTanh, 1);
    for (const kernels::LinearShape& shape : kShapes) {
      kernels::Backend backend = *GetParam();
      backend.linear_shape = shape;
      for (const std::int64_t rows : kRowCounts) {
        const auto part = data.run(backend, kRowsMax - rows, rows, Activation::kGeluTanh, 2);
        SCOPED_TRACE(::testing::Message() << rows << " rows, narrow " << shape.gemv_rows_max);
        testing::expect_rows(part, whole, kRowsMax - rows, data.n);
      }
    }
  });
}

// Sums about the smallest number that is not subnormal, where a processor may take it for zero:
// some of its instructions do so always, others only in a mode.
TEST_P(LinearTest, BitsOfARowDependOnNothingButTheRowWhereSumsVanish) {
  for (const WeightType type : kTypes) {
    for (const Problem& problem : {Problem{33, 64}, Problem{97, 40}, Problem{130, 700}}) {
      for (const float scale : {1e-19F, 1e-20F, 1e-21F}) {
        SCOPED_TRACE(::testing::Message() << "type " << static_cast<int>(type) << " k " << problem.k
                                          << " scale " << scale);
        Data data(problem, type, 1e-18F);
        for (float& x : data.x) x *= scale;
        const auto whole = data.run_bare(*GetParam(), 0, kRowsMax);
        for (const std::int64_t rows : {1, 2, 5, 17, 31}) {
          const std::int64_t first = kRowsMax - rows;
          const auto part = data.run_bare(*GetParam(), first, rows);
          SCOPED_TRACE(rows);
          testing::expect_rows(part, whole, first, data.n);
        }
      }
    }
  }
}

TEST_P(LinearTest, PackedWeightsAreNearTheirSource) {
  for_all([](Data& data) {
    for (std::int64_t n = 0; n < data.n; ++n) {
      float largest = 0.0F;
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < data.k; ++k) {
        largest =
            std::max(largest, std::fabs(data.weight[static_cast<std::size_t>(n * data.k + k)]));
      }
      for (std::int64_t k = 0; k < data.k; ++k) {
        const float weight = data.weight[static_cast<std::size_t>(n * data.k + k)];
        const float packed = kernels::packed_element(data.packed(), n, k);
        const float step = data.type == WeightType::kF32    ? 0.0F
                           : data.type == WeightType::kBF16 ? std::fabs(weight) / 256.0F
                                                            : largest / 254.0F * 1.001F;
        ASSERT_NEAR(packed, weight, step) << n << " " << k;
        if (data.type == WeightType::kInt8) {
          sum += static_cast<std::int32_t>(
              std::lround(packed / data.scales[static_cast<std::size_t>(n)]));
        }
      }
      if (data.type == WeightType::kInt8) {
        ASSERT_EQ(sum, data.sums[static_cast<std::size_t>(n)]);
      }
    }
  });
}

TEST_P(LinearTest, WhatIsNoNumberStaysInItsRow) {
  for (const WeightType type : kTypes) {
    Data data({33, 40}, type);
    data.x[static_cast<std::size_t>(2 * data.k + 5)] = NAN;
    data.x[static_cast<std::size_t>(4 * data.k + 39)] = INFINITY;
    const auto y = data.run(*GetParam(), 0, 6, Activation::kNone, 1);
    for (std::int64_t i = 0; i < 6 * data.n; ++i) {
      const bool spoiled = i / data.n == 2 || i / data.n == 4;
      ASSERT_EQ(std::isfinite(y[static_cast<std::size_t>(i)]), !spoiled) << i;
    }
  }
}

TEST_P(LinearTest, NothingIsWrittenBesideTheOutput) {
  Data data({37, 20});
  WorkerPool pool(2);
  Stream stream(*GetParam(), pool);
  constexpr std::int64_t kStride = 50;
  for (const std::int64_t rows : {1, 9, 40}) {
    std::vector<float> y(static_cast<std::size_t>(rows * kStride), -7.0F);
    kernels::linear(stream,
                    {.x = testing::slice_rows(testing::view<const float>(data.x, 20), 0, rows),
                     .weight = {data.panels.data(), 37, 20},
                     .y = testing::view<float>(y, kStride).slice_columns(6, 37)});
    for (std::int64_t i = 0; i < rows * kStride; ++i) {
      const bool inside = i % kStride >= 6 && i % kStride < 43;
      ASSERT_EQ(y[static_cast<std::size_t>(i)] == -7.0F, !inside) << i;
    }
  }
}

TEST_P(LinearTest, ActivationsAreAccurateAndKeepWhatIsNoNumber) {
  // One input, weight 1: y = activation(x).
  std::vector<float> panels(static_cast<std::size_t>(kernels::packed_size(1, 1)), 0.0F);
  panels[0] = 1.0F;
  std::vector<float> x;
  for (float value = -30.0F; value <= 30.0F; value += 0.0131F) x.push_back(value);
  x.insert(x.end(), {0.0F, -0.0F, 1e-30F, -1e-30F, 1e4F, -1e4F, NAN});
  WorkerPool pool(1);
  for (const Activation activation : testing::all_activations()) {
    SCOPED_TRACE(activation.kind);
    std::vector<float> y(x.size());
    std::vector<float> expected(x.size());
    for (const kernels::Backend* backend : {GetParam(), &kernels::reference_backend()}) {
      Stream stream(*backend, pool);
      kernels::linear(stream, {.x = testing::view<const float>(x, 1),
                               .weight = {panels.data(), 1, 1},
                               .activation = activation,
                               .y = testing::view<float>(backend == GetParam() ? y : expected, 1)});
    }
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      ASSERT_NEAR(y[i], expected[i], 4e-7F * (1.0F + std::fabs(expected[i]))) << x[i];
    }
    EXPECT_TRUE(std::isnan(y.back()));
  }
}

TEST(PackTest, OrdersAndTypesGiveTheSamePanels) {
  constexpr std::int64_t kN = 45;
  constexpr std::int64_t kK = 70;
  WorkerPool pool(2);
  // Values that half precision and bfloat16 hold exactly.
  std::vector<float> weight(kN * kK);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] = (static_cast<float>(i % 255) - 127.0F) / 64.0F;
  }
  std::vector<float> transposed(weight.size());
  std::vector<std::uint16_t> bf16(weight.size());
  std::vector<std::uint16_t> f16(weight.size());
  std::map<float, std::uint16_t> halves;
  for (std::uint16_t half = 0; half < 0x7C00; ++half) halves[half_value(half)] = half;
  for (std::int64_t n = 0; n < kN; ++n) {
    for (std::int64_t k = 0; k < kK; ++k) {
      transposed[static_cast<std::size_t>(k * kN + n)] =
          weight[static_cast<std::size_t>(n * kK + k)];
    }
  }
  for (std::size_t i = 0; i < weight.size(); ++i) {
    bf16[i] = static_cast<std::uint16_t>(testing::bits(weight[i]) >> 16);
    const std::uint16_t sign = weight[i] < 0.0F ? 0x8000 : 0;
    f16[i] = static_cast<std::uint16_t>(sign | halves.at(std::fabs(weight[i])));
  }
  const auto pack = [&](const void* data, kernels::ElementType type, kernels::WeightOrder order) {
    std::vector<float> panels(static_cast<std::size_t>(kernels::packed_size(kN, kK)), NAN);
    kernels::pack_linear(pool, {.data = data, .type = type, .order = order, .n = kN, .k = kK},
                         {.panels = panels.data()});
    return panels;
  };
  using kernels::ElementType;
  using kernels::WeightOrder;
  const auto panels = pack(weight.data(), ElementType::kF32, WeightOrder::kOutputsByInputs);
  for (std::int64_t n = 0; n < kN; ++n) {
    for (std::int64_t k = 0; k < kK; ++k) {
      ASSERT_EQ(panels[static_cast<std::size_t>((n / 32 * kK + k) * 32 + n % 32)],
                weight[static_cast<std::size_t>(n * kK + k)]);
    }
  }
  EXPECT_EQ(std::count(panels.end() - 32, panels.end(), 0.0F) >= 32 - kN % 32, true);
  EXPECT_EQ(pack(transposed.data(), ElementType::kF32, WeightOrder::kInputsByOutputs), panels);
  EXPECT_EQ(pack(bf16.data(), ElementType::kBF16, WeightOrder::kOutputsByInputs), panels);
  EXPECT_EQ(pack(f16.data(), ElementType::kF16, WeightOrder::kOutputsByInputs), panels);
}

// With a last panel, a last unit and a last task that are not full.
TEST(PackTest, WeightsByInputsGiveThePanelsOfWeightsByOutputs) {
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 75;
  kernels::WorkerPool pool(2);
  const auto by_outputs = testing::random_floats(kN * kK, 5);
  std::vector<float> by_inputs(by_outputs.size());
  for (std::int64_t n = 0; n < kN; ++n) {
    for (std::int64_t k = 0; k < kK; ++k) {
      by_inputs[static_cast<std::size_t>(k * kN + n)] =
          by_outputs[static_cast<std::size_t>(n * kK + k)];
    }
  }
  for (const auto type :
       {kernels::WeightType::kF32, kernels::WeightType::kBF16, kernels::WeightType::kInt8}) {
    const auto pack = [&](const std::vector<float>& weight, kernels::WeightOrder order) {
      // Filled alike: all of it is written.
      std::vector<std::uint32_t> panels(
          static_cast<std::size_t>(kernels::packed_size(kN, kK, type)),
          order == kernels::WeightOrder::kInputsByOutputs ? 0xAAAAAAAAU : 0x55555555U);
      std::vector<float> scales(static_cast<std::size_t>(kernels::padded_columns(kN)));
      std::vector<std::int32_t> sums(scales.size());
      kernels::pack_linear(
          pool,
          {.data = weight.data(),
           .type = kernels::ElementType::kF32,
           .order = order,
           .n = kN,
           .k = kK},
          {.panels = panels.data(), .type = type, .scales = scales.data(), .sums = sums.data()});
      return std::tuple(panels, scales, sums);
    };
    EXPECT_EQ(pack(by_inputs, kernels::WeightOrder::kInputsByOutputs),
              pack(by_outputs, kernels::WeightOrder::kOutputsByInputs))
        << static_cast<int>(type);
  }
}

TEST(PackTest, EveryHalfPrecisionNumberIsConvertedExactly) {
  for (std::uint32_t half = 0; half < 65536; ++half) {
    const auto bits16 = static_cast<std::uint16_t>(half);
    const float expected = half_value(bits16);
    float value = 0.0F;
    kernels::convert_to_f32(&bits16, kernels::ElementType::kF16, 1, &value);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << half;
    } else {
      ASSERT_EQ(testing::bits(value), testing::bits(expected)) << half;
    }
  }
}

TEST(LinearDeathTest, APrologueIsCheckedAndItsResultIsWhatTheLinearReads) {
  constexpr std::int64_t kSide = 64;
  std::vector<float> numbers(kSide * kSide);
  std::vector<float> others = numbers;
  const auto x = testing::view<float>(numbers, kSide);
  kernels::WorkerPool pool(1);
  kernels::Stream stream(kernels::reference_backend(), pool);
  kernels::LinearArgs args{.x = testing::view<float>(others, kSide),
                           .weight = {numbers.data(), kSide, kSide, kernels::WeightType::kF32},
                           .y = x,
                           .prologue = kernels::GatedActivationArgs{.x = x, .y = x}};
  EXPECT_DEATH(kernels::linear(stream, args), "gated_activation");
  args.prologue = kernels::RmsNormArgs{.x = x, .weight = numbers.data(), .y = x};
  EXPECT_DEATH(kernels::linear(stream, args), "args.y.data == x.data");
}

}  // namespace
}  // namespace lmtp

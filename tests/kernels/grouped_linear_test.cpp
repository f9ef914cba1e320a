// Linears of weights by groups: codes of 4 and 8 bits and of e4m3, each group with its scale.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "code_rows.h"
#include "kernel_support.h"
#include "kernels/linear.h"
#include "slice_rows.h"

namespace lmtp {
namespace {

using kernels::CodeType;
using kernels::ElementType;
using kernels::Grouping;
using kernels::Stream;
using kernels::WeightType;
using kernels::WorkerPool;
using testing::Codes;
using testing::for_groupings;
using testing::kWhole;
using testing::pack_codes_on_host;
using testing::pack_floats_on_host;
using testing::PackedOnHost;

constexpr std::int64_t kGroupedRowsMax = 40;
// Neither all inputs nor all outputs fill their blocks.
constexpr std::int64_t kOutputs = 75;
// A task of one thread or of two has all panels that are taken side by side.
constexpr std::int64_t kManyOutputs = 520;
constexpr std::int64_t kInputCounts[] = {1, 40, 172, 700};

std::vector<float> run(const kernels::Backend& backend, const kernels::PackedLinear& weight,
                       std::vector<float>& x, std::int64_t first, std::int64_t rows,
                       int num_threads = 2) {
  WorkerPool pool(num_threads);
  Stream stream(backend, pool);
  std::vector<float> y(static_cast<std::size_t>(rows * weight.n), NAN);
  kernels::linear(stream,
                  {.x = testing::slice_rows(testing::view<const float>(x, weight.k), first, rows),
                   .weight = weight,
                   .y = testing::view<float>(y, weight.n)});
  return y;
}

std::vector<float> inputs(std::int64_t k) {
  return testing::random_floats(static_cast<std::size_t>(kGroupedRowsMax * k), 5);
}

class GroupedLinearTest : public testing::BackendTest {
 protected:
  // Does the backend fuse a multiplication and an addition?
  static bool is_fused() { return std::string(GetParam()->name) != "generic"; }
};

INSTANTIATE_TEST_SUITE_P(Backends, GroupedLinearTest, ::testing::ValuesIn(kernels::cpu_backends()),
                         testing::backend_name);

// Widened weights take the operations of f32 on the numbers that they stand for.
TEST_P(GroupedLinearTest, WidenedWeightsGiveTheBitsOfF32) {
  for_groupings([](WeightType type, const Grouping& by) {
    if (type != WeightType::kWidened) return;
    for (const std::int64_t k : kInputCounts) {
      Codes codes(kOutputs, k, by);
      const PackedOnHost packed = pack_codes_on_host(type, kOutputs, k, by, codes);
      std::vector<float> numbers;
      for (std::int64_t n = 0; n < kOutputs; ++n) {
        for (std::int64_t i = 0; i < k; ++i) {
          numbers.push_back(kernels::packed_element(packed.weight, n, i));
        }
      }
      const PackedOnHost plain = pack_floats_on_host(WeightType::kF32, kOutputs, k, {}, numbers);
      std::vector<float> x = inputs(k);
      for (const std::int64_t rows : {1, 3, 13, 30}) {
        const auto y = run(*GetParam(), packed.weight, x, 0, rows);
        const auto expected = run(*GetParam(), plain.weight, x, 0, rows);
        if (is_fused()) {
          testing::expect_same_bits(y, expected);
        } else {
          for (std::size_t i = 0; i < y.size(); ++i) {
            ASSERT_NEAR(y[i], expected[i], 3e-5F * (1.0F + std::fabs(expected[i]))) << i;
          }
        }
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(GroupedLinearTest, Int4GivesTheBitsOfItsPlainTwin) {
  for_groupings([](WeightType type, const Grouping& by) {
    if (type != WeightType::kInt4) return;
    for (const std::int64_t k : kInputCounts) {
      Codes codes(kManyOutputs, k, by);
      const PackedOnHost packed = pack_codes_on_host(type, kManyOutputs, k, by, codes);
      std::vector<float> x = inputs(k);
      const auto expected = run(kernels::reference_backend(), packed.weight, x, 0, 30);
      const auto y = run(*GetParam(), packed.weight, x, 0, 30);
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (is_fused()) {
          ASSERT_EQ(testing::bits(y[i]), testing::bits(expected[i])) << "k " << k << " at " << i;
        }
        ASSERT_NEAR(y[i], expected[i], 3e-5F * (1.0F + std::fabs(expected[i])));
      }
    }
  });
}

// Whatever narrow lanes partial sums rest in, the largest ones of a group are exact.
TEST_P(GroupedLinearTest, TheLargestProductsOfInt4AreExact) {
  constexpr std::int64_t kK = 300;
  for (const std::int64_t group : {32, 64, 128}) {
    const Grouping by{.group = group};
    Codes codes(kOutputs, kK, by);
    for (std::int64_t n = 0; n < kOutputs; ++n) {
      for (std::int64_t i = 0; i < kK; ++i) codes.code(n, i) = n % 2 == 0 ? 15 : 0;
      for (std::int64_t g = 0; g < num_groups(by, kK); ++g) codes.scale(n, g) = 0.5F;
    }
    const auto packed = pack_codes_on_host(WeightType::kInt4, kOutputs, kK, by, codes);
    std::vector<float> x(static_cast<std::size_t>(8 * kK), 127.0F);
    for (std::size_t i = x.size() / 2; i < x.size(); ++i) x[i] = -127.0F;
    const auto y = run(*GetParam(), packed.weight, x, 0, 8);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const bool is_negative = i >= y.size() / 2;
      const float code = i % kOutputs % 2 == 0 ? 7.0F : -8.0F;
      ASSERT_EQ(y[i], kK * 127 * 0.5F * (is_negative ? -code : code)) << "group " << group;
    }
  }
}

// Rounded inputs cost little: the twin is near the product of the numbers themselves.
TEST(GroupedLinear, TheTwinOfInt4IsNearTheExactProduct) {
  constexpr std::int64_t kK = 700;
  const Grouping by;
  Codes codes(kOutputs, kK, by);
  const PackedOnHost packed = pack_codes_on_host(WeightType::kInt4, kOutputs, kK, by, codes);
  std::vector<float> x = inputs(kK);
  const auto y = run(kernels::reference_backend(), packed.weight, x, 0, 4);
  double errors = 0.0;
  double squares = 0.0;
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t n = 0; n < kOutputs; ++n) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < kK; ++k) {
        sum += static_cast<double>(x[static_cast<std::size_t>(row * kK + k)]) *
               static_cast<double>(kernels::packed_element(packed.weight, n, k));
      }
      const double error =
          sum - static_cast<double>(y[static_cast<std::size_t>(row * kOutputs + n)]);
      errors += error * error;
      squares += sum * sum;
    }
  }
  EXPECT_LT(std::sqrt(errors / squares), 0.01);
  EXPECT_GT(errors, 0.0);
}

TEST_P(GroupedLinearTest, BitsOfARowDependOnNothingButTheRow) {
  for_groupings([](WeightType type, const Grouping& by) {
    for (const std::int64_t k : {std::int64_t{40}, std::int64_t{300}}) {
      Codes codes(kManyOutputs, k, by);
      const PackedOnHost packed = pack_codes_on_host(type, kManyOutputs, k, by, codes);
      std::vector<float> x = inputs(k);
      const auto whole = run(*GetParam(), packed.weight, x, 0, kGroupedRowsMax, 1);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 25}) {
        const std::int64_t first = kGroupedRowsMax - rows;
        testing::expect_rows(run(*GetParam(), packed.weight, x, first, rows, (rows - 1) % 3 + 1),
                             whole, first, kManyOutputs);
        if (HasFatalFailure()) return;
      }
    }
  });
}

TEST_P(GroupedLinearTest, WhatIsNoNumberStaysInItsRow) {
  for_groupings([](WeightType type, const Grouping& by) {
    Codes codes(kOutputs, 40, by);
    const PackedOnHost packed = pack_codes_on_host(type, kOutputs, 40, by, codes);
    std::vector<float> x = inputs(40);
    x[2 * 40 + 5] = NAN;
    x[4 * 40 + 39] = INFINITY;
    const auto y = run(*GetParam(), packed.weight, x, 0, 6);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(kOutputs);
      ASSERT_EQ(std::isfinite(y[i]), row != 2 && row != 4) << i;
    }
  });
}

// Scales that have 16 bits in the file stay what they are.
TEST(PackCodesTest, PackedElementsAreScaleTimesCode) {
  for_groupings([](WeightType type, const Grouping& by) {
    for (const std::int64_t k : kInputCounts) {
      Codes codes(kOutputs, k, by);
      for (std::int64_t n = 0; n < kOutputs; ++n) {
        for (std::int64_t g = 0; g < num_groups(by, k); ++g) {
          codes.scale(n, g) = std::ldexp(static_cast<float>((n + g) % 255 - 127), -14);
        }
      }
      const PackedOnHost packed = pack_codes_on_host(type, kOutputs, k, by, codes);
      for (std::int64_t n = 0; n < kOutputs; ++n) {
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int64_t group = by.group >= k ? 0 : i / by.group;
          const int code = codes.code(n, i);
          const int exponent = (code >> 3) & 15;
          constexpr float kE2M1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
          const float number =
              by.codes == CodeType::kInt4   ? static_cast<float>(code - kernels::code_base(by))
              : by.codes == CodeType::kE2M1 ? kE2M1[code % 8] * (code < 8 ? 1.0F : -1.0F)
              : by.codes == CodeType::kInt8
                  ? static_cast<float>(static_cast<std::int8_t>(code))
                  : std::ldexp(static_cast<float>((code & 7) + (exponent > 0 ? 8 : 0)),
                               std::max(exponent, 1) - 10) *
                        ((code & 128) != 0 ? -1.0F : 1.0F);
          const float expected = std::fma(number, codes.scale(n, group),
                                          by.has_offsets ? codes.offset(n, group) : 0.0F);
          ASSERT_EQ(kernels::packed_element(packed.weight, n, i), expected) << n << " " << i;
        }
      }
    }
  });
}

// Codes of 8 bits with a scale an output are the panels that are packed from their numbers.
TEST(PackCodesTest, BytesAreThePanelsOfInt8) {
  constexpr std::int64_t kK = 75;
  const Grouping by{.codes = CodeType::kInt8, .group = kWhole, .scales = ElementType::kF32};
  Codes codes(kOutputs, kK, by);
  std::vector<float> numbers;
  for (std::int64_t n = 0; n < kOutputs; ++n) {
    codes.scale(n, 0) = std::ldexp(1.0F, static_cast<int>(n % 7) - 10);
    codes.code(n, n % kK) = 127;
    for (std::int64_t i = 0; i < kK; ++i) {
      if (codes.code(n, i) == 128) codes.code(n, i) = 0;
      numbers.push_back(static_cast<float>(static_cast<std::int8_t>(codes.code(n, i))) *
                        codes.scale(n, 0));
    }
  }
  const PackedOnHost packed = pack_codes_on_host(WeightType::kInt8, kOutputs, kK, by, codes);
  const PackedOnHost rounded = pack_floats_on_host(WeightType::kInt8, kOutputs, kK, {}, numbers);
  EXPECT_EQ(std::memcmp(packed.memory.data(), rounded.memory.data(), packed.memory.num_bytes()), 0);
  EXPECT_EQ(packed.scales, rounded.scales);
  EXPECT_EQ(packed.sums, rounded.sums);
}

TEST(PackCodesTest, FloatsAreRoundedTo4BitsByGroups) {
  constexpr std::int64_t kK = 172;
  const auto by_outputs = testing::random_floats(kOutputs * kK, 6, 0.02F);
  std::vector<float> by_inputs(by_outputs.size());
  for (std::int64_t n = 0; n < kOutputs; ++n) {
    for (std::int64_t k = 0; k < kK; ++k) {
      by_inputs[static_cast<std::size_t>(k * kOutputs + n)] =
          by_outputs[static_cast<std::size_t>(n * kK + k)];
    }
  }
  for (const std::int64_t group : {32, 64, 128}) {
    const Grouping by{.group = group};
    const PackedOnHost packed =
        pack_floats_on_host(WeightType::kInt4, kOutputs, kK, by, by_outputs);
    const PackedOnHost other = pack_floats_on_host(WeightType::kInt4, kOutputs, kK, by, by_inputs,
                                                   kernels::WeightOrder::kInputsByOutputs);
    EXPECT_EQ(std::memcmp(packed.memory.data(), other.memory.data(), packed.memory.num_bytes()), 0);
    for (std::int64_t n = 0; n < kOutputs; ++n) {
      for (std::int64_t first = 0; first < kK; first += group) {
        const std::int64_t end = std::min(first + group, kK);
        float largest = 0.0F;
        for (std::int64_t k = first; k < end; ++k) {
          const float value = by_outputs[static_cast<std::size_t>(n * kK + k)];
          if (std::fabs(value) > std::fabs(largest)) largest = value;
        }
        for (std::int64_t k = first; k < end; ++k) {
          const float value = by_outputs[static_cast<std::size_t>(n * kK + k)];
          // Half a step; a whole one at the end that has 7 steps instead of 8.
          const float share = value / largest < -7.0F / 8.0F ? 1.0F : 0.5F;
          ASSERT_NEAR(kernels::packed_element(packed.weight, n, k), value,
                      std::fabs(largest) / 8.0F * share + std::fabs(largest) / 128.0F);
        }
      }
    }
  }
}

TEST(PackCodesTest, GroupsOfZerosAreZeros) {
  const std::vector<float> zeros(32 * 64, 0.0F);
  PackedOnHost packed = pack_floats_on_host(WeightType::kInt4, 32, 64, {}, zeros);
  std::vector<float> x = inputs(64);
  for (const float y : run(kernels::cpu_backend(), packed.weight, x, 0, 2)) EXPECT_EQ(y, 0.0F);
}

}  // namespace
}  // namespace lmtp

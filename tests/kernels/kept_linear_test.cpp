// Weights of 16 bits that are multiplied as f32: their bits are those of the same weights in f32.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernel_support.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "slice_rows.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using kernels::PackedLinear;
using kernels::WeightOrder;
using kernels::WeightType;
using kernels::WorkerPool;

constexpr std::int64_t kRowsMax = 70;

// Finite, with subnormals and both zeros.
std::vector<std::uint16_t> random_halves(std::size_t count, ElementType type) {
  const auto floats = testing::random_floats(count, 5, 0.1F);
  std::vector<std::uint16_t> halves(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = testing::bits(floats[i]);
    if (type == ElementType::kBF16) {
      halves[i] = static_cast<std::uint16_t>(bits >> 16 & (i % 31 == 0 ? 0x807FU : 0xFFFFU));
    } else {
      // Sign, any exponent up to that of 1, and the highest bits of the fraction.
      halves[i] = static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | (i * 7 % 16) << 10 |
                                             (bits >> 13 & 0x3FFU));
    }
    if (i % 97 == 0) halves[i] &= 0x8000U;
  }
  return halves;
}

// A weight [n, k] as it is kept, and as f32.
struct Kept {
  Kept(std::int64_t num_outputs, std::int64_t num_inputs, ElementType source)
      : n(num_outputs),
        k(num_inputs),
        of_source(source),
        halves(random_halves(static_cast<std::size_t>(n * k), source)),
        floats(halves.size()),
        x(testing::random_floats(static_cast<std::size_t>(kRowsMax * k), 1)),
        bias(testing::random_floats(static_cast<std::size_t>(n), 3)) {
    x[0] = -0.0F;
    x.back() = INFINITY;
    kernels::convert_to_f32(halves.data(), source, n * k, floats.data());
    kept = pack(halves.data(), source, WeightOrder::kOutputsByInputs, type());
    wide = pack(floats.data(), ElementType::kF32, WeightOrder::kOutputsByInputs, WeightType::kF32);
  }

  WeightType type() const { return kernels::kept_type(WeightType::kF32, of_source, k); }

  std::vector<std::uint32_t> pack(const void* data, ElementType source, WeightOrder order,
                                  WeightType to) const {
    WorkerPool pool(2);
    std::vector<std::uint32_t> panels(static_cast<std::size_t>(kernels::packed_size(n, k, to)),
                                      order == WeightOrder::kOutputsByInputs ? 7U : 9U);
    kernels::pack_linear(pool, {.data = data, .type = source, .order = order, .n = n, .k = k},
                         {.panels = panels.data(), .type = to});
    return panels;
  }

  PackedLinear packed(bool is_kept) const {
    return is_kept ? PackedLinear{kept.data(), n, k, type()} : PackedLinear{wide.data(), n, k};
  }

  std::vector<float> run(const kernels::Backend& backend, bool is_kept, std::int64_t rows) {
    WorkerPool pool(2);
    kernels::Stream stream(backend, pool);
    std::vector<float> y(static_cast<std::size_t>(rows * n));
    kernels::linear(stream, {.x = testing::slice_rows(testing::view<const float>(x, k), 0, rows),
                             .weight = packed(is_kept),
                             .bias = bias.data(),
                             .activation = kernels::Activation::kGeluTanh,
                             .y = testing::view<float>(y, n)});
    return y;
  }

  std::int64_t n;
  std::int64_t k;
  ElementType of_source;
  std::vector<std::uint16_t> halves;
  std::vector<float> floats;
  std::vector<float> x;
  std::vector<float> bias;
  std::vector<std::uint32_t> kept;
  std::vector<std::uint32_t> wide;
};

constexpr ElementType kSources[] = {ElementType::kBF16, ElementType::kF16};

class KeptLinearTest : public testing::BackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, KeptLinearTest, ::testing::ValuesIn(kernels::cpu_backends()),
                         testing::backend_name);

TEST_P(KeptLinearTest, HasTheBitsOfF32) {
  static constexpr kernels::LinearShape kLinearShapes[] = {
      {1, 1, 15}, {3, 4, 128}, {6, 4, 128}, {12, 1, 512}};
  for (const ElementType source : kSources) {
    for (const auto& [n, k] : {std::pair{1, 2}, {33, 64}, {97, 40}, {130, 700}, {257, 1030}}) {
      Kept weight(n, k, source);
      for (const kernels::LinearShape& shape : kLinearShapes) {
        kernels::Backend backend = *GetParam();
        backend.linear_shape = shape;
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 25, 70}) {
          SCOPED_TRACE(::testing::Message() << n << " by " << k << ", " << rows << " rows, up to "
                                            << shape.gemv_rows_max << " in one pass");
          testing::expect_rows(weight.run(backend, true, rows), weight.run(backend, false, rows), 0,
                               n);
        }
      }
    }
  }
}

TEST_P(KeptLinearTest, ATableHasTheBitsOfF32) {
  for (const ElementType source : kSources) {
    const Kept weight(71, 48, source);
    const std::vector<std::int32_t> ids = {0, 70, 31, 32, 33, 5, 5};
    std::vector<float> y[2];
    for (const bool is_kept : {false, true}) {
      WorkerPool pool(2);
      kernels::Stream stream(*GetParam(), pool);
      y[is_kept].resize(ids.size() * 48);
      kernels::embedding(stream, {.ids = ids.data(),
                                  .table = weight.packed(is_kept),
                                  .scale = 2.5F,
                                  .y = testing::view<float>(y[is_kept], 48)});
    }
    testing::expect_rows(y[1], y[0], 0, 48);
  }
}

TEST(KeptWeightTest, OrdersGiveTheSamePanelsWithTheSourcesNumbers) {
  for (const ElementType source : kSources) {
    const Kept weight(70, 74, source);
    std::vector<std::uint16_t> transposed(weight.halves.size());
    for (std::int64_t n = 0; n < weight.n; ++n) {
      for (std::int64_t k = 0; k < weight.k; ++k) {
        const auto at = static_cast<std::size_t>(n * weight.k + k);
        transposed[static_cast<std::size_t>(k * weight.n + n)] = weight.halves[at];
        ASSERT_EQ(testing::bits(kernels::packed_element(weight.packed(true), n, k)),
                  testing::bits(weight.floats[at]));
      }
    }
    EXPECT_EQ(weight.pack(transposed.data(), source, WeightOrder::kInputsByOutputs, weight.type()),
              weight.kept);
  }
}

TEST(KeptWeightTest, OnlyF32OfAnEvenNumberOfInputsIsKeptSo) {
  using kernels::kept_type;
  EXPECT_EQ(kept_type(WeightType::kF32, ElementType::kBF16, 64), WeightType::kF32AsBF16);
  EXPECT_EQ(kept_type(WeightType::kF32, ElementType::kF16, 64), WeightType::kF32AsF16);
  EXPECT_EQ(kept_type(WeightType::kF32, ElementType::kF32, 64), WeightType::kF32);
  EXPECT_EQ(kept_type(WeightType::kF32, ElementType::kF16, 65), WeightType::kF32);
  EXPECT_EQ(kept_type(WeightType::kBF16, ElementType::kF16, 64), WeightType::kBF16);
  EXPECT_EQ(kept_type(WeightType::kInt8, ElementType::kBF16, 64), WeightType::kInt8);
}

}  // namespace
}  // namespace lmtp

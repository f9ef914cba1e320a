// Norms, embedding and other ops on rows, over the backends of the test that this is linked into.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernel_support.h"
#include "kernels/activation.h"
#include "kernels/rotary.h"
#include "slice_rows.h"

namespace lmtp {
namespace {

using kernels::Stream;
using kernels::WorkerPool;

constexpr float kInf = std::numeric_limits<float>::infinity();

class RowsTest : public testing::BackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, RowsTest, ::testing::ValuesIn(testing::backends_under_test()),
                         testing::backend_name);

TEST_P(RowsTest, LayerNormEqualsItsTwinAndIsLocalToTheRow) {
  for (const std::int64_t width : {1, 3, 16, 40, 100, 1027}) {
    constexpr std::int64_t kRows = 23;
    auto x = testing::random_floats(static_cast<std::size_t>(kRows * width), 5, 3.0F);
    auto weight = testing::random_floats(static_cast<std::size_t>(width), 6);
    auto bias = testing::random_floats(static_cast<std::size_t>(width), 7);
    const auto run = [&](const kernels::Backend& backend, std::int64_t first, std::int64_t rows) {
      WorkerPool pool(2);
      Stream stream(backend, pool);
      std::vector<float> y(static_cast<std::size_t>(rows * width), NAN);
      kernels::layer_norm(
          stream, {.x = testing::slice_rows(testing::view<const float>(x, width), first, rows),
                   .weight = weight.data(),
                   .bias = bias.data(),
                   .epsilon = 1e-5F,
                   .y = testing::view<float>(y, width)});
      return y;
    };
    const auto expected = run(kernels::reference_backend(), 0, kRows);
    const auto whole = run(*GetParam(), 0, kRows);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_NEAR(whole[i], expected[i], 1e-5F * (1.0F + std::fabs(expected[i])));
    }
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto alone = run(*GetParam(), row, 1);
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + row * width));
    }
  }
}

// Runs an op that changes x on all rows together and on each alone, and its twin; checks that they
// agree. op(stream, matrix, first row)
template <typename Op>
void expect_local_and_near(const kernels::Backend& backend, std::int64_t rows, std::int64_t width,
                           float tolerance, const Op& op) {
  const auto x = testing::random_floats(static_cast<std::size_t>(rows * width), 31, 3.0F);
  const auto run = [&](const kernels::Backend& with, std::int64_t first, std::int64_t count) {
    WorkerPool pool(2);
    Stream stream(with, pool);
    std::vector<float> y(x.begin() + first * width, x.begin() + (first + count) * width);
    op(stream, testing::view<float>(y, width), first);
    return y;
  };
  const auto expected = run(kernels::reference_backend(), 0, rows);
  const auto whole = run(backend, 0, rows);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_NEAR(whole[i], expected[i], tolerance * (1.0F + std::fabs(expected[i])));
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto alone = run(backend, row, 1);
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + row * width));
  }
}

TEST_P(RowsTest, RmsNormEqualsItsTwinAndIsLocalToTheRow) {
  for (const std::int64_t width : {1, 3, 16, 40, 1027}) {
    for (const std::int64_t groups : {1, 3}) {
      const auto weight = testing::random_floats(static_cast<std::size_t>(width), 6);
      expect_local_and_near(
          *GetParam(), 9, groups * width, 1e-5F,
          [&](Stream& stream, kernels::Matrix<float> x, std::int64_t) {
            kernels::rms_norm(
                stream,
                {.x = x, .weight = weight.data(), .groups = groups, .epsilon = 1e-6F, .y = x});
            // And once more, added to what there is.
            std::vector<float> copy(x.data, x.data + x.rows * x.columns);
            kernels::rms_norm(stream, {.x = testing::view<const float>(copy, x.columns),
                                       .weight = weight.data(),
                                       .groups = groups,
                                       .epsilon = 1e-6F,
                                       .residual = x,
                                       .y = x});
          });
    }
  }
}

TEST_P(RowsTest, RotaryTurnsPairsOfDimensions) {
  constexpr std::int64_t kRows = 9;
  const std::vector<std::int32_t> positions = {0, 1, 2, 3, 100, 1000, 4095, 131071, 7};
  for (const auto& [head_dim, rotary_dim] : {std::pair{64, 64}, {20, 20}, {24, 6}, {80, 32}}) {
    const std::int64_t half = rotary_dim / 2;
    const float growth = head_dim == 20 ? 0.3F : 0.0F;
    const auto periods = testing::random_floats(static_cast<std::size_t>(half), 3, 0.3F);
    expect_local_and_near(
        *GetParam(), kRows, std::int64_t{3} * head_dim, 1e-5F,
        [&, dim = head_dim](Stream& stream, kernels::Matrix<float> x, std::int64_t first) {
          std::vector<float> cosines(static_cast<std::size_t>(x.rows * half));
          std::vector<float> sines(cosines.size());
          kernels::rotary_angles(stream, {.positions = positions.data() + first,
                                          .inverse_periods = periods.data(),
                                          .factor = 1.2F,
                                          .growth = growth,
                                          .period = 50,
                                          .cosines = testing::view<float>(cosines, half),
                                          .sines = testing::view<float>(sines, half)});
          for (std::size_t i = 0; i < cosines.size(); ++i) {
            const std::size_t row = i / static_cast<std::size_t>(half);
            const float angle =
                static_cast<float>(positions[static_cast<std::size_t>(first) + row]) *
                periods[i % static_cast<std::size_t>(half)];
            const int periods_before = positions[static_cast<std::size_t>(first) + row] / 50;
            const double factor =
                1.2 * (1.0 + static_cast<double>(growth) * std::log(1.0 + periods_before));
            ASSERT_NEAR(cosines[i], factor * std::cos(static_cast<double>(angle)), 2e-6);
            ASSERT_NEAR(sines[i], factor * std::sin(static_cast<double>(angle)), 2e-6);
          }
          kernels::rotary(stream, {.x = x,
                                   .head_dim = dim,
                                   .cosines = testing::view<const float>(cosines, half),
                                   .sines = testing::view<const float>(sines, half)});
        });
  }
}

TEST_P(RowsTest, GatedActivationsAndSoftCap) {
  using kernels::Activation;
  for (const Activation activation : testing::all_activations()) {
    expect_local_and_near(
        *GetParam(), 9, 2 * 37, 3e-6F, [&](Stream& stream, kernels::Matrix<float> x, std::int64_t) {
          kernels::gated_activation(
              stream, {.x = x, .activation = activation, .y = x.slice_columns(0, 37)});
        });
  }
  expect_local_and_near(*GetParam(), 9, 131, 1e-5F,
                        [&](Stream& stream, kernels::Matrix<float> x, std::int64_t) {
                          kernels::soft_cap(stream, x, 2.5F);
                        });
  for (const float far : {-1e30F, -1000.0F, 1000.0F, 1e30F}) {
    std::vector<float> x = {far, -kInf, NAN};
    WorkerPool pool(1);
    Stream stream(*GetParam(), pool);
    kernels::soft_cap(stream, testing::view<float>(x, 3), 30.0F);
    EXPECT_NEAR(x[0], std::copysign(30.0F, far), 3e-5F);
    EXPECT_NEAR(x[1], -30.0F, 3e-5F);
    EXPECT_TRUE(std::isnan(x[2]));
  }
}

// Whole numbers times a step, the largest in each row 127: exact in every type.
std::vector<float> table_of(kernels::WeightType type, std::int64_t rows, std::int64_t width) {
  const float step = type == kernels::WeightType::kF32 ? 0.1F : 0.125F;
  auto table = testing::random_floats(static_cast<std::size_t>(rows * width), 8, 40.0F);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const bool is_first = i % static_cast<std::size_t>(width) == 0;
    table[i] = is_first ? -127.0F * step : step * std::round(std::clamp(table[i], -127.0F, 127.0F));
  }
  return table;
}

void expect_exact_rows(const kernels::Backend& backend, kernels::WeightType type,
                       std::int64_t width) {
  constexpr std::int64_t kVocab = 71;
  const auto table = table_of(type, kVocab, width);
  auto position_table = testing::random_floats(static_cast<std::size_t>(10 * width), 9);
  std::vector<float> panels(static_cast<std::size_t>(kernels::packed_size(kVocab, width, type)));
  std::vector<float> scales(static_cast<std::size_t>(kernels::padded_columns(kVocab)));
  std::vector<std::int32_t> sums(scales.size());
  WorkerPool pool(2);
  Stream stream(backend, pool);
  kernels::pack_linear(
      pool, {.data = table.data(), .n = kVocab, .k = width},
      {.panels = panels.data(), .type = type, .scales = scales.data(), .sums = sums.data()});
  const std::vector<std::int32_t> ids = {0, 70, 31, 32, 33, 5, 5};
  const std::vector<std::int32_t> positions = {8, -1, 0, 1, 2, 3, 4};
  std::vector<float> y(ids.size() * static_cast<std::size_t>(width + 1), 7.0F);
  const auto rows = testing::view<float>(y, width + 1);
  for (const bool with_positions : {false, true}) {
    const float scale = with_positions ? 1.0F : 2.5F;
    kernels::EmbeddingArgs args{
        .ids = ids.data(),
        .table = {panels.data(), kVocab, width, type, scales.data(), sums.data()},
        .positions = positions.data(),
        .position_table = {},
        .position_offset = with_positions ? 1 : 0,
        .scale = scale,
        .y = rows.slice_columns(0, width)};
    if (with_positions) args.position_table = testing::view<const float>(position_table, width);
    kernels::embedding(stream, args);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float* row = rows.row(static_cast<std::int64_t>(i));
      for (std::int64_t c = 0; c < width; ++c) {
        float expected = table[static_cast<std::size_t>(ids[i] * width + c)] * scale;
        if (with_positions) {
          expected += position_table[static_cast<std::size_t>((positions[i] + 1) * width + c)];
        }
        ASSERT_EQ(row[c], expected) << width << ' ' << i << ' ' << c;
      }
      ASSERT_EQ(row[width], 7.0F) << "beyond the row";
    }
  }
}

TEST_P(RowsTest, EmbeddingGathersPackedRowsExactly) {
  using kernels::WeightType;
  for (const WeightType type : {WeightType::kF32, WeightType::kBF16, WeightType::kInt8}) {
    if (GetParam()->device != nullptr && type != WeightType::kF32) {
      continue;  // packed by the device: cuda_rows_test.cpp
    }
    for (const std::int64_t width : {1, 2, 3, 37, 64, 1026}) {
      for (const kernels::Backend* backend : {GetParam(), &kernels::reference_backend()}) {
        expect_exact_rows(*backend, type, width);
      }
    }
  }
}

// Of a vocabulary, of which a table has the ids from 20 to 29.
TEST_P(RowsTest, APartOfAnEmbeddingHasZerosForOtherIds) {
  constexpr std::int64_t kVocab = 10;
  constexpr std::int32_t kFirst = 20;
  constexpr std::int64_t kWidth = 37;
  const auto table = testing::random_floats(static_cast<std::size_t>(kVocab * kWidth), 15);
  auto position_table = testing::random_floats(static_cast<std::size_t>(3 * kWidth), 16);
  const std::vector<std::int32_t> ids = {19, 20, 29, 30, 0, 24};
  const std::vector<std::int32_t> positions = {0, 1, 2, 0, 1, 2};
  for (const kernels::Backend* backend : {GetParam(), &kernels::reference_backend()}) {
    WorkerPool pool(2);
    Stream stream(*backend, pool);
    std::vector<std::uint32_t> panels(
        static_cast<std::size_t>(kernels::packed_size(kVocab, kWidth, kernels::WeightType::kF32)));
    kernels::pack_linear(pool, {.data = table.data(), .n = kVocab, .k = kWidth},
                         {.panels = panels.data(), .type = kernels::WeightType::kF32});
    std::vector<float> y(ids.size() * static_cast<std::size_t>(kWidth), 7.0F);
    const auto rows = testing::view<float>(y, kWidth);
    kernels::embedding(stream,
                       {.ids = ids.data(),
                        .first_id = kFirst,
                        .is_part = true,
                        .table = {panels.data(), kVocab, kWidth, kernels::WeightType::kF32},
                        .positions = positions.data(),
                        .position_table = testing::view<const float>(position_table, kWidth),
                        .scale = 2.0F,
                        .y = rows});
    stream.synchronize();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int32_t id = ids[i] - kFirst;
      const bool is_there = id >= 0 && id < kVocab;
      for (std::int64_t c = 0; c < kWidth; ++c) {
        const float expected =
            is_there ? table[static_cast<std::size_t>(id * kWidth + c)] * 2.0F +
                           position_table[static_cast<std::size_t>(positions[i] * kWidth + c)]
                     : 0.0F;
        ASSERT_EQ(rows.row(static_cast<std::int64_t>(i))[c], expected) << ids[i] << ' ' << c;
      }
    }
  }
}

TEST_P(RowsTest, GatheredRowsAreThoseNamed) {
  constexpr std::int64_t kRows = 11;
  const std::vector<std::int32_t> rows = {10, 0, 3, 3, 9, 10, 1};
  const auto count = static_cast<std::int64_t>(rows.size());
  for (const std::int64_t width : {1, 3, 16, 37, 1027}) {
    // Both are parts of wider matrices, whose other columns stay unchanged.
    auto wide = testing::random_floats(static_cast<std::size_t>(kRows * (width + 2)), 14);
    const auto x = testing::view<const float>(wide, width + 2).slice_columns(1, width);
    for (const kernels::Backend* backend : {GetParam(), &kernels::reference_backend()}) {
      WorkerPool pool(2);
      Stream stream(*backend, pool);
      std::vector<float> to(static_cast<std::size_t>(count * (width + 1)), 7.0F);
      const auto y = testing::view<float>(to, width + 1);
      kernels::gather_rows(stream, {.x = x, .rows = rows.data(), .y = y.slice_columns(0, width)});
      for (std::int64_t i = 0; i < count; ++i) {
        const float* named = x.row(rows[static_cast<std::size_t>(i)]);
        ASSERT_TRUE(std::equal(named, named + width, y.row(i)));
        ASSERT_EQ(y.row(i)[width], 7.0F);
      }
      std::vector<float> all(static_cast<std::size_t>(kRows * width));
      const auto copy = testing::view<float>(all, width);
      kernels::gather_rows(stream, {.x = x, .y = copy});
      for (std::int64_t i = 0; i < kRows; ++i) {
        ASSERT_TRUE(std::equal(x.row(i), x.row(i) + width, copy.row(i)));
      }
    }
  }
}

}  // namespace
}  // namespace lmtp

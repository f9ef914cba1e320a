// Norms, embedding, and the reductions over a row of logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_support.h"

namespace lmtp {
namespace {

using kernels::Stream;
using kernels::WorkerPool;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class RowsTest : public testing::BackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, RowsTest, ::testing::ValuesIn(kernels::cpu_backends()),
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
      kernels::layer_norm(stream,
                          {.x = testing::view<const float>(x, width).slice_rows(first, rows),
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

TEST_P(RowsTest, EmbeddingGathersPackedRowsExactly) {
  constexpr std::int64_t kVocab = 71;
  constexpr std::int64_t kWidth = 37;
  auto table = testing::random_floats(kVocab * kWidth, 8);
  auto positions_table = testing::random_floats(10 * kWidth, 9);
  std::vector<float> panels(static_cast<std::size_t>(kernels::packed_size(kVocab, kWidth)));
  WorkerPool pool(2);
  Stream stream(*GetParam(), pool);
  kernels::pack_linear_f32(pool, {.data = table.data(), .n = kVocab, .k = kWidth}, panels.data());
  const std::vector<std::int32_t> ids = {0, 70, 31, 32, 33, 5, 5};
  const std::vector<std::int32_t> positions = {9, 0, 1, 2, 3, 4, 5};
  std::vector<float> y(ids.size() * kWidth);
  for (const bool with_positions : {false, true}) {
    kernels::EmbeddingArgs args{.ids = ids.data(),
                                .table = {panels.data(), kVocab, kWidth},
                                .positions = positions.data(),
                                .position_table = {},
                                .y = testing::view<float>(y, kWidth)};
    if (with_positions) {
      args.position_table = testing::view<const float>(positions_table, kWidth);
    }
    kernels::embedding(stream, args);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (std::int64_t c = 0; c < kWidth; ++c) {
        float expected = table[static_cast<std::size_t>(ids[i] * kWidth + c)];
        if (with_positions) {
          expected += positions_table[static_cast<std::size_t>(positions[i] * kWidth + c)];
        }
        ASSERT_EQ(y[i * kWidth + static_cast<std::size_t>(c)], expected);
      }
    }
  }
}

TEST_P(RowsTest, LogsumexpAndMaximum) {
  for (const std::size_t count : {1, 2, 15, 16, 17, 97, 50257}) {
    auto row = testing::random_floats(count, 10, 8.0F);
    row[count / 2] = -kInfinity;
    row[count - 1] = 3.0F;
    const auto size = static_cast<std::int64_t>(count);
    EXPECT_EQ(kernels::row_max(*GetParam(), row.data(), size),
              *std::max_element(row.begin(), row.end()));
    EXPECT_NEAR(kernels::row_logsumexp(*GetParam(), row.data(), size),
                kernels::row_logsumexp(kernels::reference_backend(), row.data(), size), 4e-6F);
  }
}

TEST_P(RowsTest, LogsumexpTellsWhatIsNoNumber) {
  for (const std::size_t count : {1, 5, 40}) {
    const auto size = static_cast<std::int64_t>(count);
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<float> row(count, 1.0F);
      row[at] = NAN;
      EXPECT_TRUE(std::isnan(kernels::row_logsumexp(*GetParam(), row.data(), size)));
      row[at] = kInfinity;
      EXPECT_FALSE(std::isfinite(kernels::row_logsumexp(*GetParam(), row.data(), size)));
    }
    std::vector<float> row(count, -kInfinity);
    EXPECT_EQ(kernels::row_logsumexp(*GetParam(), row.data(), size), -kInfinity);
    row[count - 1] = NAN;
    EXPECT_TRUE(std::isnan(kernels::row_logsumexp(*GetParam(), row.data(), size)));
  }
}

TEST_P(RowsTest, ExpOfALane) {
  std::vector<float> row;
  for (float value = -100.0F; value <= 0.0F; value += 0.0037F) {
    row.push_back(value);
  }
  row.push_back(-kInfinity);
  std::vector<float> to(row.size());
  kernels::row_exp(*GetParam(), row.data(), static_cast<std::int64_t>(row.size()), 0.0F, 1.0F,
                   to.data());
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double expected = std::exp(static_cast<double>(row[i]));
    ASSERT_NEAR(to[i], expected, 2e-7 * expected + 1.3e-38) << row[i];
  }
  EXPECT_EQ(to.back(), 0.0F);
  // A temperature close to 0 leaves nothing but the greatest.
  const std::vector<float> sharp = {-1.0F, 0.0F, -kInfinity, -1e-3F};
  kernels::row_exp(*GetParam(), sharp.data(), 4, 0.0F, std::numeric_limits<float>::denorm_min(),
                   to.data());
  EXPECT_EQ(std::vector<float>(to.begin(), to.begin() + 4),
            (std::vector<float>{0.0F, 1.0F, 0.0F, 0.0F}));
}

TEST_P(RowsTest, SelectionAgreesWithItsTwin) {
  auto row = testing::random_floats(1003, 12);
  row[500] = NAN;
  std::vector<std::int32_t> found(row.size());
  std::vector<std::int32_t> expected(row.size());
  for (const float threshold : {-9.0F, 0.0F, 1.5F, 9.0F}) {
    const std::int64_t count =
        kernels::row_select_at_least(*GetParam(), row.data(), 1003, threshold, found.data(), 1003);
    ASSERT_EQ(count, kernels::row_select_at_least(kernels::reference_backend(), row.data(), 1003,
                                                  threshold, expected.data(), 1003));
    ASSERT_TRUE(std::equal(found.begin(), found.begin() + count, expected.begin()));
  }
  // No more than fit are written, and all are counted.
  found.assign(3, -1);
  EXPECT_EQ(kernels::row_select_at_least(*GetParam(), row.data(), 1003, -9.0F, found.data(), 2),
            1002);
  EXPECT_EQ(found[2], -1);
}

}  // namespace
}  // namespace lmtp

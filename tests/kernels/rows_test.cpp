// The reductions over a row of logits; and rows_cases.cpp over the backends of the processor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_support.h"

namespace lmtp {

std::vector<const kernels::Backend*> testing::backends_under_test() {
  return kernels::cpu_backends();
}

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class LogitsTest : public testing::BackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, LogitsTest, ::testing::ValuesIn(kernels::cpu_backends()),
                         testing::backend_name);

TEST_P(LogitsTest, LogsumexpAndMaximum) {
  for (const std::size_t count : {1, 2, 15, 16, 17, 97, 50257}) {
    auto row = testing::random_floats(count, 10, 8.0F);
    row[count / 2] = -kInfinity;
    row[count - 1] = 3.0F;
    const auto size = static_cast<std::int64_t>(count);
    EXPECT_EQ(kernels::row_max(*GetParam(), row.data(), size),
              *std::max_element(row.begin(), row.end()));
    const auto total = kernels::row_logsumexp(*GetParam(), row.data(), size);
    const auto expected = kernels::row_logsumexp(kernels::reference_backend(), row.data(), size);
    EXPECT_EQ(total.max, expected.max);
    EXPECT_NEAR(total.log_sum, expected.log_sum, 4e-6F);
  }
}

TEST_P(LogitsTest, LogsumexpTellsWhatIsNoNumber) {
  for (const std::size_t count : {1, 5, 40}) {
    const auto log_sum = [count](const std::vector<float>& row) {
      return kernels::row_logsumexp(*GetParam(), row.data(), static_cast<std::int64_t>(count))
          .log_sum;
    };
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<float> row(count, 1.0F);
      row[at] = NAN;
      EXPECT_TRUE(std::isnan(log_sum(row)));
      row[at] = kInfinity;
      EXPECT_TRUE(std::isnan(log_sum(row)));
    }
    std::vector<float> row(count, -kInfinity);
    EXPECT_EQ(log_sum(row), -kInfinity);
    row[count - 1] = NAN;
    EXPECT_TRUE(std::isnan(log_sum(row)));
  }
}

TEST_P(LogitsTest, LogsumexpOfLargeLogitsKeepsTheSmallPart) {
  for (const float level : {-1e30F, -1e8F, 1e8F, 1e30F}) {
    std::vector<float> row(300, level);
    row[7] = -kInfinity;
    const auto total = kernels::row_logsumexp(*GetParam(), row.data(), 300);
    EXPECT_EQ(total.max, level);
    EXPECT_NEAR(total.log_sum, std::log(299.0F), 2e-6F);
    EXPECT_EQ(kernels::log_probability(row[0], total), -total.log_sum);
    EXPECT_EQ(kernels::log_probability(row[7], total), -kInfinity);
  }
}

TEST_P(LogitsTest, ExpOfALane) {
  std::vector<float> row;
  for (float value = -100.0F; value <= 0.0F; value += 0.0037F) row.push_back(value);
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

TEST_P(LogitsTest, SelectionAgreesWithItsTwin) {
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

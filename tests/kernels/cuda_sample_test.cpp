// The op sample on a device against the CPU's.
#include <gtest/gtest.h>

#include <cmath>

#include "device_under_test.h"
#include "sample_support.h"

namespace lmtp {
namespace {

using testing::SampleCase;
using testing::SampleOutcome;

// The same tokens drawn; their log probabilities to within the rounding of the sums.
TEST(CudaSampleTest, DrawsTheTokensOfTheCpu) {
  unsigned seed = 0;
  int num_drawn = 0;
  for (const auto& [width, count] :
       {std::pair<std::size_t, int>{1, 20}, {7, 150}, {100, 300}, {1003, 120}, {5000, 10}}) {
    const std::vector<SampleCase> cases = testing::random_cases(width, count, ++seed);
    const auto on_device = testing::sample(testing::device_under_test(), cases);
    const auto on_cpu = testing::sample(kernels::cpu_backend(), cases);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(std::to_string(width) + " " + std::to_string(i));
      const SampleOutcome& a = on_device[i];
      const SampleOutcome& b = on_cpu[i];
      ASSERT_EQ(a.valid(), b.valid());
      ASSERT_EQ(a.record.token, b.record.token);
      if (!a.valid()) continue;
      num_drawn += cases[i].params.scored < 0 && cases[i].params.temperature > 0.0F ? 1 : 0;
      const auto near = [](float x, float y) {
        return x == y || std::fabs(x - y) <= 2e-5F + 2e-6F * std::fabs(y);
      };
      ASSERT_TRUE(near(a.record.logprob, b.record.logprob));
      ASSERT_EQ(a.top.size(), b.top.size());
      for (std::size_t k = 0; k < a.top.size(); ++k) {
        ASSERT_EQ(a.top[k].first, b.top[k].first) << k;
        ASSERT_TRUE(near(a.top[k].second, b.top[k].second)) << k;
      }
    }
  }
  EXPECT_GT(num_drawn, 250);
}

// Each row equals itself alone, in bits, in any order of the device's threads.
TEST(CudaSampleTest, OtherRowsAndOrderDoNotMatter) {
  const std::vector<SampleCase> cases = testing::random_cases(1003, 16, 77);
  testing::set_thread_order(5);
  const auto together = testing::sample(testing::device_under_test(), cases);
  testing::set_thread_order(0);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    testing::expect_same(testing::sample(testing::device_under_test(), cases[i]), together[i]);
  }
}

}  // namespace
}  // namespace lmtp

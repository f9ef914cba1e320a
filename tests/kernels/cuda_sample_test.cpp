// The op sample on a device against the CPU's.
#include <gtest/gtest.h>

#include <cmath>

#include "device_under_test.h"
#include "sample_support.h"

namespace lmtp {
namespace {

using testing::SampleCase;
using testing::SampleOutcome;

// The same token and list; log probabilities to within the rounding of the sums.
void expect_near(const SampleOutcome& a, const SampleOutcome& b) {
  ASSERT_EQ(a.valid(), b.valid());
  ASSERT_EQ(a.record.token, b.record.token);
  if (!a.valid()) return;
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
      expect_near(on_device[i], on_cpu[i]);
      if (HasFatalFailure()) return;
      if (!on_cpu[i].valid()) continue;
      num_drawn += cases[i].params.scored < 0 && cases[i].params.temperature > 0.0F ? 1 : 0;
    }
  }
  EXPECT_GT(num_drawn, 250);
}

struct Vocabulary {
  const char* name;
  std::vector<float> logits;
  int atomics_max;  // on one address
};

// Logits as GPT-2 has them, flat ones as of random weights, some of which many are equal, and few
// possible ones. Of equal ones every thread has one to add.
std::vector<Vocabulary> vocabularies() {
  constexpr std::size_t kSize = 50257;
  std::vector<float> spread = testing::random_floats(kSize, 1, 10.0F);
  for (float& logit : spread) logit -= 100.0F;
  std::vector<float> rounded = spread;
  for (float& logit : rounded) logit = std::floor(logit);
  std::vector<float> few(kSize, -INFINITY);
  for (std::size_t i = 17; i < kSize; i += 991) few[i] = spread[i];
  return {{"spread", spread, 128},
          {"flat", testing::random_floats(kSize, 2, 0.1F), 128},
          {"rounded", rounded, 3 * kernels::kSampleTopMax},
          {"equal", std::vector<float>(kSize, 1.5F), 3 * kernels::kSampleTopMax},
          {"few", few, 128}};
}

// A device does atomic operations on one address one after another: thousands are microseconds.
TEST(CudaSampleTest, FewAtomicsMeetAtOneAddress) {
  const std::vector<DrawParams> draws = {{.temperature = 0.0F},
                                         {.temperature = 1.0F},
                                         {.temperature = 1.0F, .top_k = 40},
                                         {.temperature = 1.0F, .top_p = 0.9F},
                                         {.temperature = 1.0F, .typical_p = 0.9F},
                                         {.temperature = 0.7F, .min_p = 1e-4F, .top_k = 3000},
                                         {.temperature = 2.0F, .top_p = 0.9F, .top_k = 1000}};
  constexpr int kTopMax = kernels::kSampleTopMax;
  for (const Vocabulary& vocabulary : vocabularies()) {
    for (const int num_top : {0, 1, 5, 20, 250, kTopMax}) {
      for (std::size_t i = 0; i < draws.size(); ++i) {
        // The long lists with some draws each.
        if (num_top > 20 && i % 3 != 0) continue;
        SCOPED_TRACE(std::string(vocabulary.name) + ", top " + std::to_string(num_top) + ", draw " +
                     std::to_string(i));
        SampleCase one{.logits = vocabulary.logits};
        static_cast<DrawParams&>(one.params) = draws[i];
        one.params.seed = i;
        one.params.num_top = num_top;
        (void)testing::take_atomics_max();
        const SampleOutcome outcome = testing::sample(testing::device_under_test(), one);
        // Long lists are put down by one counter.
        const bool is_long = num_top > 20 || draws[i].top_k == 1000;
        EXPECT_LE(testing::take_atomics_max(), is_long ? 4 * kTopMax : vocabulary.atomics_max);
        expect_near(outcome, testing::sample(kernels::cpu_backend(), one));
        if (HasFatalFailure()) return;
      }
    }
  }
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

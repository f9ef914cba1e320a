// The op sample on a device against the CPU's.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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
  ASSERT_EQ(a.measured.id, b.measured.id);
  ASSERT_TRUE(near(a.measured.logprob, b.measured.logprob));
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

struct Row {
  const char* name;
  std::vector<float> logits;
};

// In the order in which a thread goes through them maxima rise in each batch or never, or come
// after none at all; differences are too large for a float, or too small.
std::vector<Row> rows_of_every_order(std::size_t width) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const std::vector<float> noise = testing::random_floats(width, 4, 3.0F);
  const auto made = [&](const auto& logit_of) {
    std::vector<float> logits(width);
    for (std::size_t id = 0; id < width; ++id) {
      logits[id] = logit_of(noise[id], static_cast<float>(id));
    }
    return logits;
  };
  std::vector<Row> rows = {
      {"rising", made([](float x, float id) { return x + id / 4096.0F - 100.0F; })},
      {"rising fast", made([](float, float id) { return id / 3.0F; })},
      {"falling", made([](float x, float id) { return x - id / 4096.0F; })},
      {"far below 0", made([](float x, float) { return x - 1e4F; })},
      {"lowest", made([](float, float id) { return id == 0.0F ? -INFINITY : kLowest; })},
      {"both ends", made([](float x, float) { return x > 2.5F ? -kLowest : kLowest; })},
      {"zeros", made([](float x, float) { return x > 0.0F ? 0.0F : -0.0F; })},
      {"few values", made([](float x, float) { return std::floor(x); })},
      {"one large", made([](float, float id) { return id == 1500.0F ? 16.8F : 0.0F; })},
      {"impossible threads",
       made([](float x, float id) { return std::fmod(id, 1024.0F) < 200.0F ? -INFINITY : x; })},
      {"impossible at first", made([&](float x, float id) {
         return id + 9.0F < static_cast<float>(width) ? -INFINITY : x - 50.0F;
       })},
      {"impossible", made([](float, float) { return -INFINITY; })}};
  for (const float broken : {NAN, INFINITY}) {
    for (const std::size_t at : {std::size_t{0}, width / 2, width - 1}) {
      rows.push_back({"no number among numbers", noise});
      rows.back().logits[at] = broken;
      rows.push_back({"no number alone", std::vector<float>(width, -INFINITY)});
      rows.back().logits[at] = broken;
    }
  }
  return rows;
}

// One pass adds up exponentials before it knows the maximum.
TEST(CudaSampleTest, SumsAreTheCpusInWhateverOrderMaximaCome) {
  for (const std::size_t width : {1, 5, 1000, 1024, 1025, 8193, 16385, 50257}) {
    for (const Row& row : rows_of_every_order(width)) {
      SCOPED_TRACE(std::string(row.name) + " " + std::to_string(width));
      SampleCase greedy{.logits = row.logits};
      greedy.params.num_top = static_cast<std::int32_t>(std::min<std::size_t>(width, 3));
      SampleCase drawn = greedy;
      drawn.params.temperature = 1.0F;
      SampleCase scored = greedy;
      scored.params.scored = static_cast<std::int32_t>(width / 2);
      const std::vector<SampleCase> cases = {greedy, drawn, scored};
      const auto on_device = testing::sample(testing::device_under_test(), cases);
      const auto on_cpu = testing::sample(kernels::cpu_backend(), cases);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        expect_near(on_device[i], on_cpu[i]);
        if (HasFatalFailure()) return;
        EXPECT_LE(on_device[i].record.logprob, 0.0F);
      }
    }
  }
}

// How often the logits are read.
TEST(CudaSampleTest, ARowIsReadAsOftenAsItHasToBe) {
  struct Passes {
    DrawParams draw;
    std::int32_t num_top;
    std::int64_t is_raw;
    int count;
  };
  const std::vector<Passes> all = {
      {{.temperature = 0.0F}, 0, 0, 1},
      {{.temperature = 0.0F}, 1, 0, 1},
      {{.temperature = 0.0F}, 1, 1, 3},  // and once for the copy, and for its own total
      {{.temperature = 1.0F}, 0, 0, 2},
      {{.temperature = 1.0F, .min_p = 0.01F}, 0, 0, 3},
      {{.temperature = 1.0F, .top_p = 0.9F}, 0, 0, 5}};
  for (const std::size_t width : {100, 5003}) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(std::to_string(width) + ", " + std::to_string(i));
      SampleCase one{.logits = testing::random_floats(width, 6, 4.0F)};
      static_cast<DrawParams&>(one.params) = all[i].draw;
      one.params.num_top = all[i].num_top;
      one.params.is_raw = all[i].is_raw;
      (void)testing::take_bytes_loaded();
      ASSERT_TRUE(testing::sample(testing::device_under_test(), one).valid());
      const std::int64_t num_bytes = testing::take_bytes_loaded();
      if (num_bytes < 0) return;
      EXPECT_EQ(num_bytes, all[i].count * static_cast<std::int64_t>(width * sizeof(float)));
    }
  }
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
  for (const auto& [width, count] : {std::pair<std::size_t, int>{1003, 16}, {20003, 4}}) {
    const std::vector<SampleCase> cases = testing::random_cases(width, count, 77);
    testing::set_thread_order(5);
    const auto together = testing::sample(testing::device_under_test(), cases);
    testing::set_thread_order(0);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(std::to_string(width) + " " + std::to_string(i));
      testing::expect_same(testing::sample(testing::device_under_test(), cases[i]), together[i]);
    }
  }
}

}  // namespace
}  // namespace lmtp

// What BatchLimits may add to the scheduler's own rules: TGI's knobs.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::SchedulerDriver;
using testing::small_options;

constexpr int kNumBlocks = 25;  // 24 of 16 tokens: 384

// Eight streams of 20 tokens that come to have 120; those of an odd number on another connection.
std::vector<StreamKey> add_eight(SchedulerDriver& driver) {
  std::vector<StreamKey> keys;
  for (int i = 0; i < 8; ++i) {
    keys.push_back(driver.generate(i, counting(i * 50, 20), 100, 1 + i % 2));
  }
  return keys;
}

int num_preempted(SchedulerDriver& driver) {
  driver.run();
  return static_cast<int>(driver.scheduler().counters().num_preemptions);
}

TEST(BatchLimits, WithATotalNoneIsPreempted) {
  SchedulerDriver usual(testing::small_agent(kNumBlocks), small_options());
  const std::vector<StreamKey> keys = add_eight(usual);
  EXPECT_GT(num_preempted(usual), 0) << "they do not fit";
  // Less than the pool holds, all of it, and more.
  for (const int total : {256, 384, 1 << 20}) {
    SchedulerOptions options = small_options();
    options.batch.max_total_tokens = total;
    SchedulerDriver limited(testing::small_agent(kNumBlocks), options);
    add_eight(limited);
    int most = 0;
    while (limited.step()) most = std::max(most, limited.scheduler().num_running());
    EXPECT_EQ(limited.scheduler().counters().num_preemptions, 0) << total;
    EXPECT_EQ(most, std::min(total, 384) / 120) << total;
    for (const StreamKey& key : keys) {
      EXPECT_EQ(limited.outcome(key).tokens, usual.outcome(key).tokens);
    }
  }
}

// A Score has all its tokens from the start.
TEST(BatchLimits, TheTotalCountsScoresByTheirLength) {
  SchedulerOptions options = small_options();
  options.batch.max_tokens = 512;
  options.batch.max_total_tokens = 256;
  SchedulerDriver driver(testing::small_agent(), options);
  driver.score(1, counting(0, 100), counting(200, 60));
  driver.score(2, counting(300, 50), counting(400, 46));
  driver.score(3, counting(500, 1), counting(600, 1));
  driver.step();  // computes the first two whole
  EXPECT_EQ(driver.scheduler().num_waiting(), 1);
  driver.run();
  EXPECT_EQ(driver.scheduler().num_waiting(), 0);
}

TEST(BatchLimits, WithATotalNoneIsPreemptedForAnotherConnection) {
  for (const int total : {0, 1 << 20}) {
    SchedulerOptions options = small_options();
    options.batch.max_sequences = 2;
    options.batch.max_total_tokens = total;
    SchedulerDriver driver(testing::small_agent(), options);
    for (int i = 0; i < 2; ++i) driver.generate(i, counting(i * 50, 10), 200, 1);
    driver.step();
    const StreamKey late = driver.generate(9, counting(500, 10), 5, 2);
    for (int i = 0; i < 64 + 5; ++i) driver.step();
    EXPECT_EQ(driver.outcome(late).done, total == 0);
    EXPECT_EQ(num_preempted(driver), total == 0 ? 1 : 0);
  }
}

TEST(BatchLimits, PrefillTakesNoMoreOfAStepThanAllowed) {
  for (const int most : {1, 8, 40}) {
    SchedulerOptions options = small_options();
    options.batch.max_tokens = 512;
    options.batch.max_prefill_tokens = most;
    SchedulerDriver driver(testing::small_agent(), options);
    for (int i = 0; i < 4; ++i) driver.generate(i, counting(i * 100, 60), 30);
    int reached = 0;
    for (int i = 0; driver.step(); ++i) {
      // Of the first 100 steps, one brings prompts that are nearly cached.
      if (i == 100) driver.generate(10, counting(0, 70), 3);
      int num_prefill = 0;
      for (const PlanRow& row : driver.last_plan().rows) {
        const bool decodes = row.num_tokens == 1 && row.num_logits == 1;
        num_prefill += decodes ? 0 : row.num_tokens;
      }
      reached = std::max(reached, num_prefill);
    }
    EXPECT_EQ(reached, most);
    EXPECT_TRUE(driver.scheduler().idle());
  }
}

// Ten streams run; who comes is held back.
class PacedAdmissions : public ::testing::Test {
 protected:
  static SchedulerOptions paced() {
    SchedulerOptions options = small_options();
    options.batch.max_tokens = 512;
    options.batch.pacing = AdmissionPacing{};
    return options;
  }

  void SetUp() override {
    for (int i = 0; i < 10; ++i) driver_.generate(i, counting(i * 30, 20), 150);
    driver_.step();
    ASSERT_EQ(num_admitted(), 10U) << "nothing ran, so that nobody was held back";
  }

  void come(StreamId id) { driver_.generate(id, counting(static_cast<int>(id) * 30, 20), 5); }
  std::size_t num_admitted() const { return driver_.last_plan().admitted.size(); }

  SchedulerDriver driver_{testing::small_agent(), paced()};
};

TEST_F(PacedAdmissions, EndOnceEnoughWait) {
  come(20);
  come(21);
  for (int i = 0; i < 5; ++i) {
    driver_.step();
    EXPECT_EQ(num_admitted(), 0U) << "three of ten is the ratio";
  }
  come(22);
  driver_.step();
  EXPECT_EQ(num_admitted(), 3U);
  driver_.run();
}

TEST_F(PacedAdmissions, EndAfterSoManySteps) {
  come(20);
  for (int i = 1; i < 20; ++i) {
    driver_.step();
    EXPECT_EQ(num_admitted(), 0U) << i << " steps after the last";
  }
  driver_.step();
  EXPECT_EQ(num_admitted(), 1U);
  come(21);
  driver_.step();
  EXPECT_EQ(num_admitted(), 0U) << "they are counted anew";
  driver_.run();
}

TEST_F(PacedAdmissions, AreOfPromptsThatAreToBeComputed) {
  come(20);
  driver_.generate(21, counting(0, 20 + 8), 5);  // the first has its first 20 tokens in the cache
  driver_.step();
  ASSERT_EQ(num_admitted(), 1U);
  EXPECT_EQ(driver_.last_plan().admitted[0].key.stream, 21);
  driver_.run();
}

TEST(BatchLimits, AtFewRunningStreamsTheRatioHoldsNobodyBack) {
  SchedulerOptions options = small_options();
  options.batch.pacing = AdmissionPacing{};  // 0.3 of 4 is one, which waits
  SchedulerDriver driver(testing::small_agent(), options);
  for (int i = 0; i < 5; ++i) {
    driver.generate(i, counting(i * 30, 20), 50);
    driver.step();
    EXPECT_EQ(driver.last_plan().admitted.size(), 1U) << i;
  }
  driver.run();
}

}  // namespace
}  // namespace lmtp::scheduler

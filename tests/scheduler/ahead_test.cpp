// Steps planned before the last one's tokens are known.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::SchedulerDriver;
using testing::small_options;

constexpr int kAheadVocab = testing::kSmallVocab;

FakeAgentOptions agent_options(bool runs_ahead = true) {
  FakeAgentOptions options = testing::small_agent();
  options.runs_ahead = runs_ahead;
  return options;
}

// Tokens that went through the model.
std::int64_t run_three(bool runs_ahead) {
  SchedulerDriver driver(agent_options(runs_ahead), small_options());
  const std::vector<int> lengths = {3, 40, 17};
  std::vector<StreamKey> keys;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    keys.push_back(driver.generate(static_cast<StreamId>(i + 1),
                                   counting(static_cast<int>(i) * 20, 13), lengths[i]));
  }
  driver.run();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(driver.outcome(keys[i]).tokens,
              FakeAgent::expected_tokens(counting(static_cast<int>(i) * 20, 13), lengths[i],
                                         kAheadVocab));
    EXPECT_EQ(driver.outcome(keys[i]).finish, FinishReason::kLength);
  }
  // Forty tokens: one step for the prompts, and behind it each was planned ahead.
  EXPECT_EQ(driver.num_steps_ahead(), runs_ahead ? 39 : 0);
  EXPECT_EQ(driver.scheduler().pool().num_pinned(), 0);
  return driver.scheduler().counters().num_tokens_computed;
}

TEST(Ahead, TokensAreTheSameAndNoStepIsWastedOnALastToken) {
  EXPECT_EQ(run_three(true), run_three(false));
}

TEST(Ahead, AStreamThatStopsLeavesNothingOfTheStepBehindIt) {
  const auto prompt = counting(0, 14);
  const auto tokens = FakeAgent::expected_tokens(prompt, 30, kAheadVocab);
  for (std::size_t last = 0; last < 20; ++last) {
    SCOPED_TRACE(last);
    SchedulerOptions options = small_options();
    options.eos_ids = {tokens[last]};
    SchedulerDriver driver(agent_options(), options);
    const auto key = driver.generate(1, prompt, 30);
    const auto other = driver.generate(2, counting(500, 3), 60);
    driver.run();
    EXPECT_EQ(driver.outcome(key).tokens.size(), last + 1);
    EXPECT_EQ(driver.outcome(key).finish, FinishReason::kStop);
    EXPECT_EQ(driver.outcome(other).tokens,
              FakeAgent::expected_tokens(counting(500, 3), 60, kAheadVocab, tokens[last]));
    EXPECT_EQ(driver.scheduler().pool().num_pinned(), 0);
    // Goes on from its blocks with another token where the step behind the end wrote one.
    auto longer = prompt;
    longer.insert(longer.end(), tokens.begin(), tokens.begin() + static_cast<int>(last));
    longer.insert(longer.end(), {777, 778, 779});
    const auto after = driver.generate(3, longer, 5);
    driver.run();
    EXPECT_EQ(driver.outcome(after).tokens, FakeAgent::expected_tokens(longer, 5, kAheadVocab));
  }
}

TEST(Ahead, AStepIsPlannedAheadUnlessOneThatWaitsMayCome) {
  const auto starts_ahead = [](const auto& add) {
    SchedulerDriver driver(agent_options(), small_options());
    driver.generate(1, counting(0, 5), 30);
    add(driver);
    driver.step();
    return driver.num_steps_ahead() > 0;
  };
  EXPECT_TRUE(starts_ahead([](SchedulerDriver&) {}));
  EXPECT_TRUE(starts_ahead([](SchedulerDriver& d) { d.generate(2, counting(50, 5), 2); }));
  EXPECT_TRUE(starts_ahead([](SchedulerDriver& d) { d.generate(2, counting(50, 150), 2); }));
  EXPECT_TRUE(starts_ahead([](SchedulerDriver& d) { d.score(2, counting(50, 5), {1, 2}); }));
  EXPECT_TRUE(starts_ahead([](SchedulerDriver& d) {
    SamplingParams params;
    params.repetition_penalty = 1.2F;
    d.generate(2, counting(50, 5), 8, 1, params);
  }));
  EXPECT_FALSE(starts_ahead([](SchedulerDriver& d) {
    for (StreamId id = 2; id < 100; ++id) d.generate(id, counting(50, 5), 2);  // more than may run
  }));
}

// Prefills, Scores and decodes, and one stream whose next step is not known: it alone waits.
TEST(Ahead, EachRowRunsAheadThatMay) {
  SchedulerOptions options = small_options();
  options.eos_ids = {kAheadVocab};
  options.batch.max_tokens = 1024;
  SchedulerDriver driver(agent_options(), options);
  SamplingParams params;
  params.min_tokens = 8;
  const auto held = driver.generate(1, counting(0, 5), 12, 1, params);
  const auto free = driver.generate(2, counting(100, 5), 12);
  const auto prompt = driver.generate(3, counting(200, 150), 12);
  const auto scored = driver.score(4, counting(400, 40), counting(50, 90));
  int num_steps = 0;
  while (driver.outcome(free).tokens.size() < 12) {
    ASSERT_TRUE(driver.step());
    ++num_steps;
  }
  // Its eighth token lifts what forbids its end: the ninth comes a step later.
  EXPECT_EQ(driver.outcome(held).tokens.size(), 11U);
  EXPECT_GE(driver.num_steps_ahead(), num_steps - 1) << "all are admitted at once";
  driver.run();
  EXPECT_EQ(driver.outcome(held).tokens,
            FakeAgent::expected_tokens(counting(0, 5), 12, kAheadVocab));
  EXPECT_EQ(driver.outcome(prompt).tokens,
            FakeAgent::expected_tokens(counting(200, 150), 12, kAheadVocab));
  EXPECT_EQ(driver.outcome(scored).tokens, counting(50, 90));
}

// Where all places are taken, those that wait are looked at every 16 steps.
TEST(Ahead, ThoseThatWaitDoNotStopIt) {
  SchedulerOptions options = small_options();
  options.batch.max_sequences = 2;
  SchedulerDriver driver(agent_options(), options);
  for (StreamId id = 1; id <= 3; ++id) {
    driver.generate(id, counting(static_cast<int>(id) * 100, 5), 33);
  }
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(driver.step());
  EXPECT_EQ(driver.scheduler().num_waiting(), 1);
  EXPECT_EQ(driver.num_steps_ahead(), 30);
  driver.run();
}

TEST(Ahead, WhatNeedsAPreemptionWaitsForTheCommit) {
  FakeAgentOptions agent = agent_options();
  agent.num_blocks = 18;  // a whole context and one more
  SchedulerDriver driver(agent, small_options());
  std::vector<StreamKey> keys;
  for (StreamId id = 1; id <= 3; ++id) {
    keys.push_back(driver.generate(id, counting(static_cast<int>(id) * 100, 20), 120));
  }
  driver.run();
  for (StreamId id = 1; id <= 3; ++id) {
    EXPECT_EQ(
        driver.outcome(keys[static_cast<std::size_t>(id - 1)]).tokens,
        FakeAgent::expected_tokens(counting(static_cast<int>(id) * 100, 20), 120, kAheadVocab));
  }
  EXPECT_GT(driver.scheduler().counters().num_preemptions, 0);
  EXPECT_GT(driver.num_steps_ahead(), 50);
}

TEST(Ahead, AFailedRowEndsItsStreamAlone) {
  FakeAgentOptions agent = agent_options();
  agent.row_fails = [](const SlotState& s) { return s.key.stream == 2 && s.tokens.size() == 13; };
  SchedulerDriver driver(agent, small_options());
  const auto good = driver.generate(1, counting(0, 10), 20);
  const auto bad = driver.generate(2, counting(50, 10), 20);
  driver.run();
  EXPECT_EQ(driver.outcome(bad).error, "logits: not a number");
  EXPECT_EQ(driver.outcome(good).tokens,
            FakeAgent::expected_tokens(counting(0, 10), 20, kAheadVocab));
}

TEST(Ahead, AFailedStepTakesTheOneBehindItAlong) {
  for (const int failing : {1, 2, 3, 10}) {
    FakeAgentOptions agent = agent_options();
    int steps = 0;
    agent.before_step = [&](const StepPlan&) -> Result<void> {
      if (++steps == failing) return Error{ErrorCode::kInternal, "out of memory"};
      return {};
    };
    SchedulerDriver driver(agent, small_options());
    const auto failed = driver.generate(1, counting(0, 10), 20);
    driver.run();
    EXPECT_EQ(driver.outcome(failed).error, "out of memory");
    EXPECT_EQ(driver.outcome(failed).tokens.size(), static_cast<std::size_t>(failing - 1));
    const auto after = driver.generate(2, counting(0, 10), 20);
    driver.run();
    EXPECT_EQ(driver.outcome(after).tokens,
              FakeAgent::expected_tokens(counting(0, 10), 20, kAheadVocab));
  }
}

}  // namespace
}  // namespace lmtp::scheduler

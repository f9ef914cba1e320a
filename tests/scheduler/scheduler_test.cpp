#include "lmtp/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::SchedulerDriver;
using testing::small_options;

TEST(Scheduler, GeneratesAsTheModelWouldAlone) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto key = driver.generate(1, counting(0, 10), 20);
  driver.run();
  EXPECT_EQ(driver.outcome(key).tokens,
            FakeAgent::expected_tokens(counting(0, 10), 20, testing::kSmallVocab));
  EXPECT_EQ(driver.outcome(key).finish, FinishReason::kLength);
}

TEST(Scheduler, ClampsMaxTokensToTheContext) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto key = driver.generate(1, counting(0, 250), 1'000'000);
  driver.run();
  EXPECT_EQ(driver.outcome(key).tokens.size(), 6U);
  EXPECT_EQ(driver.outcome(key).finish, FinishReason::kLength);
}

TEST(Scheduler, StopsAtEos) {
  const auto free_run = FakeAgent::expected_tokens(counting(0, 10), 20, testing::kSmallVocab);
  SchedulerOptions options = small_options();
  options.eos_ids = {free_run[4]};
  SchedulerDriver driver(testing::small_agent(), options);
  const auto key = driver.generate(1, counting(0, 10), 20);
  driver.run();
  EXPECT_EQ(driver.outcome(key).tokens.size(), 5U);
  EXPECT_EQ(driver.outcome(key).finish, FinishReason::kStop);
}

TEST(Scheduler, ScoresInChunks) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto prompt = counting(0, 100);
  const auto scored = counting(500, 90);
  const auto key = driver.score(1, prompt, scored);
  driver.run();
  EXPECT_EQ(driver.outcome(key).tokens, scored);
  auto prefix = prompt;
  for (std::size_t i = 0; i < scored.size(); ++i) {
    EXPECT_EQ(driver.outcome(key).logprobs[i], FakeAgent::logprob_after(prefix, scored[i])) << i;
    prefix.push_back(scored[i]);
  }
  EXPECT_EQ(driver.outcome(key).finish, FinishReason::kStop);
}

TEST(Scheduler, AScoreWithoutPromptBeginsWithZero) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto alone = driver.score(1, {}, {7});
  EXPECT_TRUE(driver.outcome(alone).done);
  const auto three = driver.score(2, {}, {7, 8, 9});
  driver.run();
  EXPECT_EQ(driver.outcome(alone).logprobs, std::vector<float>{0.0F});
  EXPECT_EQ(driver.outcome(three).logprobs,
            (std::vector<float>{0.0F, FakeAgent::logprob_after({7}, 8),
                                FakeAgent::logprob_after({7, 8}, 9)}));
}

TEST(Scheduler, NeverPlansMoreThanTheBudget) {
  SchedulerDriver driver(testing::small_agent(400), small_options());
  for (int i = 0; i < 40; ++i) driver.generate(i, counting(i * 20, 50), 10);
  while (driver.step()) EXPECT_LE(driver.last_plan().num_tokens, 64);
  EXPECT_TRUE(driver.scheduler().idle());
}

TEST(Scheduler, ALongPromptDoesNotHoldUpRunningStreams) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto reader = driver.generate(1, counting(0, 4), 50);
  driver.step();
  driver.generate(2, counting(300, 200), 1);
  for (int i = 0; i < 5; ++i) {
    const std::size_t before = driver.outcome(reader).tokens.size();
    driver.step();
    EXPECT_EQ(driver.outcome(reader).tokens.size(), before + 1);
    EXPECT_LE(driver.last_plan().num_tokens, 1 + 64 / 4);
  }
  driver.run();
}

TEST(Scheduler, PrefillBesideRunningStreamsIsBoundedByWhatTheCallerAllows) {
  SchedulerOptions options = small_options();
  options.batch.max_tokens = 512;
  SchedulerDriver driver(testing::small_agent(), options);
  driver.generate(1, counting(0, 100), 50);
  driver.step({.prefill = 40});
  EXPECT_EQ(driver.last_plan().num_tokens, 100) << "no stream is delayed";
  driver.generate(2, counting(300, 200), 1);
  driver.step({.prefill = 40});
  EXPECT_EQ(driver.last_plan().num_tokens, 1 + 40);
  driver.step({.prefill = 0});
  EXPECT_EQ(driver.last_plan().num_tokens, 1 + kBlockSize) << "it goes on all the same";
  driver.step();
  EXPECT_EQ(driver.last_plan().num_tokens, 1 + 512 / 4);
}

TEST(Scheduler, ASequenceGetsNoMoreThanAChunkOfAStep) {
  SchedulerOptions options = small_options();
  options.debug.max_chunk_tokens = 16;
  SchedulerDriver driver(testing::small_agent(), options);
  const auto long_one = driver.generate(1, counting(0, 50), 3);
  const auto other = driver.score(2, counting(300, 20), counting(600, 21));
  driver.step();
  ASSERT_EQ(driver.last_plan().rows.size(), 2U) << "both at once, each by its chunk";
  for (const PlanRow& row : driver.last_plan().rows) EXPECT_EQ(row.num_tokens, 16);
  while (driver.step()) {
    for (const PlanRow& row : driver.last_plan().rows) EXPECT_LE(row.num_tokens, 16);
  }
  EXPECT_EQ(driver.outcome(long_one).tokens,
            FakeAgent::expected_tokens(counting(0, 50), 3, testing::kSmallVocab));
  EXPECT_EQ(driver.outcome(other).tokens, counting(600, 21));
}

TEST(SchedulerDeath, LimitsThatNothingKeepsAreOurBug) {
  SchedulerOptions good = small_options();
  good.num_blocks = 200;
  SchedulerOptions options = good;
  options.debug.max_chunk_tokens = -1;
  EXPECT_DEATH(Scheduler{options}, "max_chunk_tokens >= 0");
  options = good;
  options.vocab_size = 0;
  EXPECT_DEATH(Scheduler{options}, "vocab_size >= 1");
  options = good;
  options.batch.max_tokens = 0;
  EXPECT_DEATH(Scheduler{options}, "check failed: .*batch.max_");
  for (const int wrong : {0, BatchLimits::kSequencesMax + 1}) {
    options = good;
    options.batch.max_sequences = wrong;
    EXPECT_DEATH(Scheduler{options}, "check failed: .*batch.max_") << wrong;
  }
}

// LMQL's normal case: the next chunk re-sends the prompt and what was kept.
TEST(Scheduler, AContinuationComputesOneToken) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto prompt = counting(0, 53);
  const auto first = driver.generate(1, prompt, 16);
  driver.run();
  const auto before = driver.scheduler().counters().num_tokens_computed;
  const auto next = driver.generate(2, testing::joined(prompt, driver.outcome(first).tokens), 16);
  driver.step();
  EXPECT_EQ(driver.scheduler().counters().num_tokens_computed - before, 1);
  EXPECT_TRUE(driver.last_plan().copies.empty()) << "the tail is taken over in place";
  EXPECT_EQ(driver.scheduler().counters().num_partial_hits, 1);
  EXPECT_EQ(driver.outcome(next).tokens.size(), 1U);
  driver.run();
  EXPECT_EQ(testing::joined(driver.outcome(first).tokens, driver.outcome(next).tokens),
            FakeAgent::expected_tokens(prompt, 32, testing::kSmallVocab));
}

TEST(Scheduler, AContinuationOfAPartOfWhatWasGeneratedComputesOneToken) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto prompt = counting(0, 53);
  const auto first = driver.generate(1, prompt, 16);
  driver.run();
  auto kept = driver.outcome(first).tokens;
  kept.resize(9);
  const auto before = driver.scheduler().counters().num_tokens_computed;
  driver.generate(2, testing::joined(prompt, kept), 4);
  driver.step();
  EXPECT_EQ(driver.scheduler().counters().num_tokens_computed - before, 1);
  EXPECT_EQ(driver.last_plan().copies.size(), 1U);
  EXPECT_EQ(driver.scheduler().counters().num_partial_hits, 1);
  driver.run();
}

TEST(Scheduler, AHundredPercentHitStillComputesTheLastToken) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto prompt = counting(0, 64);
  driver.generate(1, prompt, 4);
  driver.run();
  const auto again = driver.generate(2, prompt, 4);
  driver.step();
  EXPECT_EQ(driver.last_plan().num_tokens, 1);
  driver.run();
  EXPECT_EQ(driver.outcome(again).tokens,
            FakeAgent::expected_tokens(prompt, 4, testing::kSmallVocab));
}

TEST(Scheduler, ABurstOverOnePrefixComputesItOnce) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto prompt = counting(0, 200);
  std::vector<StreamKey> keys;
  for (int i = 0; i < 8; ++i) keys.push_back(driver.score(i, prompt, counting(600 + 10 * i, 6)));
  driver.run();
  EXPECT_LE(driver.scheduler().counters().num_tokens_computed, 200 + 8 * 6 + 8 * kBlockSize);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(driver.outcome(keys[static_cast<std::size_t>(i)]).tokens, counting(600 + 10 * i, 6));
  }
}

TEST(Scheduler, SamplesOfOnePromptShareItsTailToo) {
  SchedulerDriver driver(testing::small_agent(), small_options());
  const auto prompt = counting(0, 60);  // three blocks and twelve tokens
  for (int i = 0; i < 4; ++i) driver.generate(i, prompt, 8);
  driver.step();
  driver.step();
  // The first computed all 60; each of the others only the last one.
  EXPECT_EQ(driver.scheduler().counters().num_tokens_computed, 60 + 1 + 3);
  driver.run();
}

TEST(Scheduler, PreemptsTheYoungestAndResumesIt) {
  SchedulerOptions options = small_options();
  options.context_length = 96;
  SchedulerDriver driver(testing::small_agent(8), options);  // seven blocks of 16 tokens
  const auto old_one = driver.generate(1, counting(0, 30), 60);
  const auto young = driver.generate(2, counting(300, 30), 60);
  driver.run();
  EXPECT_GT(driver.scheduler().counters().num_preemptions, 0);
  EXPECT_EQ(driver.outcome(old_one).tokens,
            FakeAgent::expected_tokens(counting(0, 30), 60, testing::kSmallVocab));
  EXPECT_EQ(driver.outcome(young).tokens,
            FakeAgent::expected_tokens(counting(300, 30), 60, testing::kSmallVocab));
}

TEST(Scheduler, RemovingFreesBlocksInEveryState) {
  SchedulerOptions options = small_options();
  options.context_length = 96;
  SchedulerDriver driver(testing::small_agent(8), options);
  const auto decoding = driver.generate(1, counting(0, 20), 60);
  driver.step();
  const auto prefilling = driver.generate(2, counting(200, 60), 10);
  driver.step();
  const auto queued = driver.generate(3, counting(400, 60), 10);
  for (const StreamKey key : {queued, prefilling, decoding}) {
    EXPECT_TRUE(driver.scheduler().remove(key));
    driver.scheduler().check_invariants();
  }
  EXPECT_FALSE(driver.scheduler().remove(queued));
  EXPECT_EQ(driver.scheduler().pool().num_pinned(), 0);
  EXPECT_TRUE(driver.scheduler().idle());
}

TEST(Scheduler, RemovingAPreemptedSequenceFreesIt) {
  SchedulerOptions options = small_options();
  options.context_length = 96;
  SchedulerDriver driver(testing::small_agent(8), options);
  driver.generate(1, counting(0, 30), 60);
  const auto young = driver.generate(2, counting(300, 30), 60);
  while (driver.scheduler().counters().num_preemptions == 0) ASSERT_TRUE(driver.step());
  EXPECT_TRUE(driver.scheduler().remove(young));
  driver.run();
  EXPECT_FALSE(driver.outcome(young).done);
  EXPECT_EQ(driver.scheduler().pool().num_pinned(), 0);
}

TEST(Scheduler, AFailedRowEndsItsStreamAlone) {
  FakeAgentOptions agent = testing::small_agent();
  agent.row_fails = [](const SlotState& s) { return s.key.stream == 2 && s.tokens.size() == 13; };
  SchedulerDriver driver(agent, small_options());
  const auto good = driver.generate(1, counting(0, 10), 10);
  const auto bad = driver.generate(2, counting(50, 10), 10);
  driver.run();
  EXPECT_EQ(driver.outcome(bad).error, "logits: not a number");
  EXPECT_EQ(driver.outcome(good).tokens,
            FakeAgent::expected_tokens(counting(0, 10), 10, testing::kSmallVocab));
}

TEST(Scheduler, AFailedStepEndsItsStreamsAndLeavesTheCacheRight) {
  FakeAgentOptions agent = testing::small_agent();
  int steps = 0;
  agent.before_step = [&steps](const StepPlan&) -> Result<void> {
    if (++steps == 6) return Error{ErrorCode::kInternal, "out of memory"};
    return {};
  };
  SchedulerDriver driver(agent, small_options());
  const auto prompt = counting(0, 40);
  driver.generate(1, prompt, 4);
  driver.run();  // four steps; leaves its blocks in the cache
  const auto copying = driver.generate(2, counting(0, 37), 4);
  driver.step();
  const auto failing = driver.generate(3, counting(0, 35), 4);  // would copy a tail in step six
  driver.step();
  EXPECT_EQ(driver.outcome(failing).error, "out of memory");
  EXPECT_EQ(driver.outcome(copying).error, "out of memory");
  const auto after = driver.generate(4, counting(0, 37), 4);
  driver.run();
  EXPECT_EQ(driver.outcome(after).tokens,
            FakeAgent::expected_tokens(counting(0, 37), 4, testing::kSmallVocab));
}

TEST(Scheduler, ConnectionsShareByTokensServed) {
  SchedulerOptions options = small_options();
  options.batch.max_sequences = 2;
  SchedulerDriver driver(testing::small_agent(), options);
  for (int i = 0; i < 10; ++i) driver.generate(i, counting(i * 40, 32), 8, 1);
  driver.step();
  const auto other = driver.generate(100, counting(700, 32), 8, 2);
  int steps = 0;
  while (!driver.outcome(other).done) {
    ASSERT_TRUE(driver.step());
    ++steps;
  }
  // Its turn comes as soon as one of the two running sequences ends, not after all ten.
  EXPECT_LE(steps, 8 + 8 + 2);
  driver.run();
}

// As above, but the newcomer meets a backlog older than any ageing limit.
TEST(Scheduler, AnOldBacklogDoesNotOutrankOtherConnections) {
  SchedulerOptions options = small_options();
  options.batch.max_sequences = 2;
  SchedulerDriver driver(testing::small_agent(), options);
  for (int i = 0; i < 60; ++i) driver.generate(i, counting(i * 10, 8), 40, 1);
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(driver.step());
  const auto other = driver.generate(100, counting(700, 8), 4, 2);
  int steps = 0;
  while (!driver.outcome(other).done) {
    ASSERT_TRUE(driver.step());
    ++steps;
  }
  EXPECT_LE(steps, 40 + 4 + 2);
  driver.run();
}

TEST(Scheduler, OneConnectionDoesNotTakeAllSeatsOfAStep) {
  SchedulerOptions options = small_options();
  options.batch.max_sequences = 4;
  SchedulerDriver driver(testing::small_agent(), options);
  for (int i = 0; i < 20; ++i) driver.generate(i, counting(i * 10, 8), 20, 1);
  const auto other = driver.generate(100, counting(700, 8), 20, 2);
  driver.step();
  EXPECT_EQ(driver.outcome(other).tokens.size(), 1U);
  driver.run();
}

TEST(Scheduler, ACachedContinuationDoesNotWaitBehindPrompts) {
  SchedulerOptions options = small_options();
  SchedulerDriver driver(testing::small_agent(), options);
  const auto prompt = counting(0, 40);
  const auto first = driver.generate(1, prompt, 16);
  driver.run();
  driver.generate(2, counting(400, 4), 60);  // a decode, so that prefill has a quota
  driver.step();
  for (int i = 0; i < 5; ++i) driver.generate(10 + i, counting(450 + i * 100, 100), 1, 2);
  driver.step();
  const auto next = driver.generate(3, testing::joined(prompt, driver.outcome(first).tokens), 4, 3);
  driver.step();
  EXPECT_EQ(driver.outcome(next).tokens.size(), 1U);
  driver.run();
}

}  // namespace
}  // namespace lmtp::scheduler

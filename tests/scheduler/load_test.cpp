// What a stream and a connection keep while others ask for much, counted in steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "lmtp/scheduler/scheduler.h"
#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::SchedulerDriver;
using testing::small_agent;
using testing::small_options;

SchedulerOptions large_options() {
  SchedulerOptions options = small_options();
  options.context_length = 2048;
  options.batch.max_tokens = 512;
  return options;
}

// Tokens that no other prompt begins with.
std::vector<TokenId> unshared_prompt(int number, int count) {
  std::vector<TokenId> tokens = counting(number % 500, count);
  tokens[0] = static_cast<TokenId>(number % testing::kSmallVocab);
  return tokens;
}

TEST(Load, InAStormOfPromptsEachStreamHasATokenInEachStep) {
  constexpr StreamId kStreams = 16;
  constexpr int kWithin = 48;  // what the engine allows beside the decodes
  SchedulerDriver driver(small_agent(2000), large_options());
  std::vector<StreamKey> streams;
  for (StreamId id = 1; id <= kStreams; ++id) {
    streams.push_back(driver.generate(id, unshared_prompt(static_cast<int>(id), 8), 500, 1));
  }
  while (driver.scheduler().num_running() < kStreams) ASSERT_TRUE(driver.step());
  StreamId next = 100;
  std::vector<StreamKey> storm;
  int num_prompts = 0;
  int fullest = 0;
  for (int step = 0; step < 200; ++step) {
    std::erase_if(storm, [&](StreamKey key) { return driver.outcome(key).done; });
    while (storm.size() < 20) {
      // Long ones, and some that are nearly cached.
      const int number = ++num_prompts % 4 == 0 ? 999 : num_prompts;
      storm.push_back(driver.generate(next++, unshared_prompt(number, 300), 1,
                                      static_cast<ConnectionId>(2 + num_prompts % 7)));
    }
    ASSERT_TRUE(driver.step({.prefill = kWithin, .cached = kWithin / 2}));
    const std::vector<StreamKey>& keys = driver.last_keys();
    for (const StreamKey key : streams) EXPECT_EQ(std::ranges::count(keys, key), 1) << step;
    // Of a prompt the last token alone is a decode.
    const auto is_decode = [](const PlanRow& row) { return row.num_tokens == 1; };
    const auto& plan = driver.last_plan();
    const auto num_decodes = static_cast<int>(std::ranges::count_if(plan.rows, is_decode));
    fullest = std::max(fullest, plan.num_tokens - num_decodes);
  }
  EXPECT_LE(fullest, kWithin) << "of prompts of both kinds together";
  EXPECT_GT(fullest, kWithin / 2);
  EXPECT_GT(num_prompts, 30) << "prompts go on";
}

// Of a connection that comes beside what `num_streams` long ones of another one have left.
class BesideLongStreams : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kMoreSteps = 2;  // than alone

  static testing::FakeAgentOptions agent_options(int num_blocks) {
    testing::FakeAgentOptions agent = small_agent(num_blocks);
    agent.runs_ahead = GetParam();
    return agent;
  }
  static int steps_to_token(SchedulerDriver& driver, StreamKey key) {
    int steps = 0;
    while (driver.outcome(key).tokens.empty() && steps < 100) {
      driver.step();
      ++steps;
    }
    return steps;
  }
  // Steps until the first token of a prompt of so many tokens, of a connection of its own.
  static int steps_of_new(SchedulerDriver& driver, int num_prompt) {
    driver.settle();
    return steps_to_token(driver, driver.generate(1, unshared_prompt(777, num_prompt), 5, 2));
  }
  static int steps_alone(int num_prompt) {
    SchedulerDriver driver(agent_options(1000), large_options());
    return steps_of_new(driver, num_prompt);
  }
  static void begin(SchedulerDriver& driver, int num_streams) {
    for (StreamId id = 1; id <= num_streams; ++id) {
      driver.generate(id, unshared_prompt(static_cast<int>(id), 20), 1500, 1);
    }
    for (int i = 0; i < 40; ++i) driver.step();
  }
};

INSTANTIATE_TEST_SUITE_P(Agents, BesideLongStreams, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

TEST_P(BesideLongStreams, WhereThereAreSequencesAndBlocksFree) {
  SchedulerDriver driver(agent_options(20'000), large_options());
  begin(driver, 200);
  EXPECT_EQ(driver.scheduler().num_running(), 200);
  EXPECT_LE(steps_of_new(driver, 100), steps_alone(100) + kMoreSteps);
  EXPECT_EQ(driver.scheduler().counters().num_preemptions, 0);
}

TEST_P(BesideLongStreams, WhereAllSequencesRun) {
  SchedulerDriver driver(agent_options(40'000), large_options());
  begin(driver, 300);
  EXPECT_EQ(driver.scheduler().num_running(), BatchLimits::kSequencesMax);
  EXPECT_LE(steps_of_new(driver, 100), steps_alone(100) + kMoreSteps);
  EXPECT_EQ(driver.scheduler().counters().num_preemptions, 1);
}

TEST_P(BesideLongStreams, WhereNoBlockIsFree) {
  SchedulerDriver driver(agent_options(1300), large_options());
  begin(driver, 200);
  const cache::BlockPool& pool = driver.scheduler().pool();
  while (pool.num_free() + pool.num_evictable() > 4) ASSERT_TRUE(driver.step());
  driver.settle();
  const std::int64_t before = driver.scheduler().counters().num_preemptions;
  EXPECT_LE(steps_of_new(driver, 100), steps_alone(100) + kMoreSteps);
  EXPECT_LE(driver.scheduler().counters().num_preemptions - before, 8) << "seven blocks";
}

// Where all connections run one stream there is nobody to take a place from: the steps of those who
// run are planned ahead whoever comes.
TEST(Load, ThoseWhoComeInVainDelayNoStepAhead) {
  testing::FakeAgentOptions agent = small_agent(20'000);
  agent.runs_ahead = true;
  SchedulerDriver driver(agent, large_options());
  ConnectionId next = 1;
  const auto come = [&] {
    driver.generate(1, unshared_prompt(static_cast<int>(next), 8), 500, next);
    ++next;
  };
  while (next <= BatchLimits::kSequencesMax) come();
  for (int i = 0; i < 40; ++i) driver.step();
  ASSERT_EQ(driver.scheduler().num_running(), BatchLimits::kSequencesMax);
  const int before = driver.num_steps_ahead();
  constexpr int kTurns = 32;
  for (int i = 0; i < kTurns; ++i) {
    driver.settle();
    come();
    driver.step();
  }
  EXPECT_GE(driver.num_steps_ahead() - before, kTurns - kTurns / 16 * 2) << "but each 16th step";
  EXPECT_EQ(driver.scheduler().counters().num_preemptions, 0);
}

// Programs of a connection fill all places with chunks of one token, and go on with each at once.
TEST_P(BesideLongStreams, WhereChunksWouldKeepAllPlaces) {
  constexpr std::size_t kPrograms = 300;
  const KeptPlaces::Clock::time_point now{std::chrono::hours(1)};
  SchedulerDriver driver(agent_options(40'000), large_options());
  driver.scheduler().set_time(now);
  std::vector<std::vector<TokenId>> texts;
  std::vector<StreamKey> chunks;
  StreamId next_id = 1;
  const auto ask = [&](const std::vector<TokenId>& text) {
    auto sequence = std::make_unique<Sequence>();
    sequence->key = {1, next_id++};
    sequence->arrival = now;
    sequence->num_prompt = static_cast<int>(text.size());
    sequence->tokens = text;
    sequence->params.max_tokens = 1;
    return driver.add(std::move(sequence));
  };
  const auto turn = [&] {
    driver.step();
    driver.settle();
    for (std::size_t i = 0; i < kPrograms; ++i) {
      const SchedulerDriver::Outcome& chunk = driver.outcome(chunks[i]);
      if (!chunk.done) continue;
      texts[i].insert(texts[i].end(), chunk.tokens.begin(), chunk.tokens.end());
      chunks[i] = ask(texts[i]);
    }
  };
  for (std::size_t i = 0; i < kPrograms; ++i) {
    texts.push_back(unshared_prompt(static_cast<int>(i), 20));
    chunks.push_back(ask(texts.back()));
  }
  for (int i = 0; i < 40; ++i) turn();
  EXPECT_EQ(driver.last_plan().rows.size(), std::size_t{BatchLimits::kSequencesMax});
  const StreamKey key = driver.generate(1, unshared_prompt(777, 100), 5, 2);
  int steps = 0;
  for (; driver.outcome(key).tokens.empty() && steps < 100; ++steps) turn();
  EXPECT_LE(steps, steps_alone(100) + kMoreSteps);
}

// A connection that asks again and again takes no stream's place twice within 256 steps.
TEST_P(BesideLongStreams, WhoComesOftenTakesNoStreamsPlaceOften) {
  SchedulerDriver driver(agent_options(40'000), large_options());
  begin(driver, 260);
  const std::int64_t before = driver.scheduler().counters().num_preemptions;
  for (StreamId id = 1000; id < 1100; ++id) {
    driver.settle();
    steps_to_token(driver, driver.generate(id, unshared_prompt(static_cast<int>(id), 10), 1, 2));
  }
  EXPECT_LE(driver.scheduler().counters().num_preemptions - before, 100);
}

}  // namespace
}  // namespace lmtp::scheduler

// How far one connection can delay the others, counted in steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "lmtp/scheduler/scheduler.h"
#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::SchedulerDriver;
using testing::small_agent;
using testing::small_options;

constexpr int kFairVocab = testing::kSmallVocab;
constexpr int kStepsToRun = 64;       // of a connection below its share
constexpr int kProtectedSteps = 256;  // after such a preemption

// Steps until the stream has a token; more than `most` if it has none by then.
int steps_to_token(SchedulerDriver& driver, StreamKey key, int most) {
  int steps = 0;
  while (driver.outcome(key).tokens.empty() && steps <= most) {
    if (!driver.step()) break;
    ++steps;
  }
  return steps;
}

// A connection that keeps scores of up to a block over one prefix in flight, as LMQL's
// distributions do.
class Flood {
 public:
  Flood(SchedulerDriver& driver, std::vector<TokenId> prefix, int num_scored, int num_in_flight)
      : driver_(driver),
        prefix_(std::move(prefix)),
        num_scored_(num_scored),
        num_in_flight_(num_in_flight) {}

  void refill() {
    std::erase_if(live_, [this](StreamKey key) { return driver_.outcome(key).done; });
    while (static_cast<int>(live_.size()) < num_in_flight_) {
      const StreamId id = next_id_++;
      const int first = static_cast<int>(id * 37 % (kFairVocab - 20));
      live_.push_back(driver_.score(id, prefix_, counting(first, num_scored_), 1));
    }
  }
  StreamId num_sent() const { return next_id_ - kFirstId; }

 private:
  static constexpr StreamId kFirstId = 10'000;
  SchedulerDriver& driver_;
  const std::vector<TokenId> prefix_;
  const int num_scored_;
  const int num_in_flight_;
  StreamId next_id_ = kFirstId;
  std::vector<StreamKey> live_;
};

TEST(Fairness, AFloodOfCachedScoresStarvesNoPrompt) {
  SchedulerDriver driver(small_agent(1000), small_options());
  const auto prefix = counting(0, 64);
  driver.score(1, prefix, counting(100, 2), 1);
  driver.run();
  Flood flood(driver, prefix, 16, 64);
  flood.refill();
  driver.step();
  const auto running = driver.generate(2, counting(300, 200), 4, 1);
  const auto other = driver.generate(3, counting(600, 40), 4, 2);
  int steps = 0;
  for (; !driver.outcome(other).done && steps < 100; ++steps) {
    flood.refill();
    driver.step();
  }
  EXPECT_LE(steps, 3 + 4) << "a prompt of another connection";
  for (; !driver.outcome(running).done && steps < 400; ++steps) {
    flood.refill();
    driver.step();
  }
  EXPECT_LT(steps, 100) << "a prompt of the flood's own connection";
  EXPECT_GT(flood.num_sent(), 100);
  EXPECT_EQ(driver.outcome(other).tokens,
            FakeAgent::expected_tokens(counting(600, 40), 4, kFairVocab));
}

TEST(Fairness, APrefillThatRunsGoesOnBesideAFlood) {
  SchedulerDriver driver(small_agent(1000), small_options());
  const auto prefix = counting(0, 64);
  driver.score(1, prefix, counting(100, 2), 1);
  driver.run();
  const auto running = driver.generate(2, counting(300, 200), 1, 2);
  driver.step();
  Flood flood(driver, prefix, 16, 64);
  int steps = 0;
  for (; !driver.outcome(running).done && steps < 100; ++steps) {
    flood.refill();
    driver.step();
  }
  EXPECT_LE(steps, 5) << "136 tokens by half a step each";
}

TEST(Fairness, BesideDecodesAFloodIsBounded) {
  SchedulerOptions options = small_options();
  options.batch.max_tokens = 512;
  SchedulerDriver driver(small_agent(1000), options);
  const auto prefix = counting(0, 64);
  driver.score(1, prefix, counting(100, 2), 1);
  driver.generate(2, counting(700, 4), 100, 2);
  driver.step();
  Flood flood(driver, prefix, 16, 64);
  for (int i = 0; i < 10; ++i) {
    flood.refill();
    driver.step({.cached = 48});
    EXPECT_LE(driver.last_plan().num_tokens, 1 + 48);
    driver.step({.cached = 0});
    EXPECT_LE(driver.last_plan().num_tokens, 1 + 2 * kBlockSize);
  }
}

// Steps until both of two streams that do not fit together are done.
int steps_of_tight_pair(int num_in_flood) {
  SchedulerOptions options = small_options();
  options.context_length = 96;
  SchedulerDriver driver(small_agent(10), options);
  const auto a = driver.generate(1, counting(0, 30), 60, 2);
  const auto b = driver.generate(2, counting(300, 30), 60, 3);
  Flood flood(driver, {}, 17, num_in_flood);
  int steps = 0;
  while (steps < 1000 && !(driver.outcome(a).done && driver.outcome(b).done)) {
    if (driver.scheduler().counters().num_preemptions > 0) flood.refill();
    driver.step();
    ++steps;
  }
  EXPECT_GT(driver.scheduler().counters().num_preemptions, 0);
  EXPECT_EQ(driver.outcome(b).tokens,
            FakeAgent::expected_tokens(counting(300, 30), 60, kFairVocab));
  return steps;
}

TEST(Fairness, APreemptedSequenceIsNotOvertaken) {
  EXPECT_LE(steps_of_tight_pair(40), 2 * steps_of_tight_pair(0));
}

class FairPreemption : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kMaxRunning = 8;

  FairPreemption() : driver_(agent_options(), options()) {}
  static testing::FakeAgentOptions agent_options() {
    testing::FakeAgentOptions agent = small_agent(1000);
    agent.runs_ahead = GetParam();
    return agent;
  }
  static SchedulerOptions options() {
    SchedulerOptions options = small_options();
    options.context_length = 2048;
    options.batch.max_tokens = kMaxRunning;
    return options;
  }
  void run_as_many_as_may() {
    for (StreamId id = 1; id <= kMaxRunning; ++id) {
      held_.push_back(driver_.generate(id, counting(static_cast<int>(id) * 5, 3), 1500, 1));
    }
    for (int i = 0; i < 100; ++i) driver_.step();
    driver_.settle();
  }

  SchedulerDriver driver_;
  std::vector<StreamKey> held_;
};

INSTANTIATE_TEST_SUITE_P(Agents, FairPreemption, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

TEST_P(FairPreemption, AConnectionBelowItsShareRunsSoon) {
  run_as_many_as_may();
  const auto computed = driver_.scheduler().counters().num_tokens_computed;
  const auto other = driver_.generate(100, counting(700, 3), 5, 2);
  const int steps = steps_to_token(driver_, other, 2 * kStepsToRun);
  EXPECT_LE(steps, kStepsToRun);
  EXPECT_EQ(driver_.scheduler().counters().num_preemptions, 1);
  EXPECT_LE(driver_.scheduler().counters().num_tokens_computed - computed, steps * kMaxRunning);
  std::set<StreamId> rows;
  for (const StreamKey key : driver_.last_keys()) rows.insert(key.stream);
  EXPECT_FALSE(rows.contains(kMaxRunning)) << "the youngest one was preempted";
  while (!driver_.outcome(other).done) driver_.step();
  driver_.settle();
  driver_.step();
  EXPECT_EQ(driver_.last_plan().num_tokens, kMaxRunning) << "its keys and values were still there";
  driver_.run();
  EXPECT_EQ(driver_.outcome(other).tokens,
            FakeAgent::expected_tokens(counting(700, 3), 5, kFairVocab));
  for (std::size_t i = 0; i < held_.size(); ++i) {
    EXPECT_EQ(
        driver_.outcome(held_[i]).tokens,
        FakeAgent::expected_tokens(counting(5 * (static_cast<int>(i) + 1), 3), 1500, kFairVocab));
  }
}

TEST_P(FairPreemption, MoreConnectionsThanMayRunWaitForNoWholeStream) {
  run_as_many_as_may();
  std::vector<StreamKey> others;
  for (ConnectionId connection = 2; connection < 2 + 2 * kMaxRunning; ++connection) {
    others.push_back(driver_.generate(100 + static_cast<StreamId>(connection),
                                      counting(600 + static_cast<int>(connection), 3), 5,
                                      connection));
  }
  const auto num_answered = [&] {
    return std::ranges::count_if(others, [&](StreamKey k) { return driver_.outcome(k).done; });
  };
  for (int i = 0; i < kStepsToRun; ++i) driver_.step();
  EXPECT_GT(num_answered(), 0);
  for (int i = 0; i < 5 * kStepsToRun; ++i) driver_.step();
  EXPECT_EQ(num_answered(), 2 * kMaxRunning);
  driver_.run();
}

TEST_P(FairPreemption, NoStreamIsPreemptedTwiceWhileProtected) {
  run_as_many_as_may();
  std::map<StreamId, int> left_at;  // steps
  std::set<StreamId> before;
  StreamId next = 100;
  StreamKey other{};
  int num_ended = 0;
  for (int step = 0; step + driver_.num_steps_ahead() < 1200; ++step) {
    driver_.settle();
    if (next == 100 || driver_.outcome(other).done) {
      ++num_ended;
      other = driver_.generate(next++, counting(700, 3), 5, 2);
    }
    driver_.step();
    std::set<StreamId> now;
    for (const StreamKey key : driver_.last_keys()) now.insert(key.stream);
    for (const StreamKey key : held_) {
      if (!before.contains(key.stream) || now.contains(key.stream)) continue;
      const int num_steps = step + driver_.num_steps_ahead();
      if (left_at.contains(key.stream)) {
        EXPECT_GE(num_steps - left_at[key.stream], kProtectedSteps) << key.stream;
      }
      left_at[key.stream] = num_steps;
    }
    before = now;
  }
  EXPECT_GE(num_ended, 1200 / (kStepsToRun + 10));
}

TEST_P(FairPreemption, EachConnectionGetsUpToItsShareAndNoMore) {
  run_as_many_as_may();
  for (StreamId id = 100; id < 120; ++id) {
    driver_.generate(id, counting(700 - static_cast<int>(id), 3), 1500, 2);
    driver_.generate(id + 100, counting(700 - static_cast<int>(id), 3), 1500, 3);
  }
  for (int i = 0; i < 3 * kStepsToRun; ++i) driver_.step();
  std::map<ConnectionId, int> running;
  for (const StreamKey key : driver_.last_keys()) ++running[key.connection];
  EXPECT_EQ(running[1], 4);
  EXPECT_EQ(running[2], 2);
  EXPECT_EQ(running[3], 2);
  EXPECT_EQ(driver_.scheduler().counters().num_preemptions, 4) << "and none after that";
}

// Fifty connections of one key get what one connection of another key gets, and each of them the
// same.
TEST(Fairness, SharesAreByKeyAndWithinAKeyConnectionsTakeTurns) {
  constexpr ConnectionId kMany = 1000;
  constexpr ConnectionId kOne = 2000;
  SchedulerOptions options = small_options();
  options.batch.max_sequences = 8;
  SchedulerDriver driver(small_agent(), options);
  // Of all prompts the first token is soon cached, and no other.
  const auto add = [&](ConnectionId connection, ConnectionId share, StreamId id, int second) {
    auto sequence = std::make_unique<Sequence>();
    sequence->key = {connection, id};
    sequence->share = share;
    sequence->tokens = {static_cast<TokenId>(id % 50), second, 0, 1};
    sequence->num_prompt = 4;
    sequence->params.max_tokens = 5;
    return driver.add(std::move(sequence));
  };
  for (StreamId id = 1; id <= 50; ++id) {
    for (int i = 1; i <= 50; ++i) add(static_cast<ConnectionId>(i), kMany, id, i);
  }
  for (StreamId id = 1; id <= 2500; ++id) add(100, kOne, id, 200 + static_cast<int>(id / 50));
  std::map<ConnectionId, int> rows;
  std::map<ConnectionId, int> rows_of_many;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(driver.step());
    for (const StreamKey key : driver.last_keys()) {
      ++rows[key.connection == 100 ? kOne : kMany];
      if (key.connection != 100) ++rows_of_many[key.connection];
    }
  }
  EXPECT_NEAR(static_cast<double>(rows[kOne]) / (rows[kOne] + rows[kMany]), 0.5, 0.05);
  EXPECT_EQ(rows_of_many.size(), 50U);
  const auto [least, most] = std::ranges::minmax_element(
      rows_of_many, {}, [](const auto& of_one) { return of_one.second; });
  EXPECT_LE(most->second - least->second, 2 * 5) << "two streams";
}

// Each stream of the others comes on a connection of its own, and so many wait that a place is
// never free: one that has had tokens before still gets on, with and without a limit of all tokens.
TEST(Fairness, NewConnectionsWithoutEndStarveNone) {
  constexpr int kPlaces = 4;
  constexpr int kNumTokens = 20;
  for (const int total : {0, 256}) {
    SchedulerOptions options = small_options();
    options.batch.max_sequences = kPlaces;
    options.batch.max_total_tokens = total;
    SchedulerDriver driver(small_agent(), options);
    std::vector<StreamKey> others;
    ConnectionId next = 100;
    const auto step = [&] {
      std::erase_if(others, [&](StreamKey key) { return driver.outcome(key).done; });
      while (others.size() < 3 * kPlaces) {
        const auto connection = next++;
        others.push_back(driver.generate(1, counting(static_cast<int>(connection % 400), 3),
                                         kNumTokens, connection));
      }
      ASSERT_TRUE(driver.step());
    };
    for (StreamId chunk = 1; chunk <= 8; ++chunk) {
      const StreamKey key = driver.generate(chunk, counting(500, 3), kNumTokens, 1);
      int num_steps = 0;
      for (; !driver.outcome(key).done && num_steps < 1000; ++num_steps) step();
      // Of the places a thirteenth is its part.
      EXPECT_LE(num_steps, 10 * kNumTokens) << "chunk " << chunk << ", total " << total;
    }
  }
}

TEST(Fairness, ABlockedConnectionRunsSoonToo) {
  SchedulerOptions options = small_options();
  SchedulerDriver driver(small_agent(24), options);  // a context, and seven blocks
  std::vector<StreamKey> held;
  for (StreamId id = 1; id <= 3; ++id) {
    held.push_back(driver.generate(id, counting(static_cast<int>(id) * 100, 96), 150, 1));
  }
  for (int i = 0; i < 10; ++i) driver.step();
  EXPECT_EQ(driver.scheduler().num_running(), 3);
  const auto other = driver.generate(100, counting(700, 60), 5, 2);
  EXPECT_LE(steps_to_token(driver, other, 2 * kStepsToRun), kStepsToRun);
  driver.run();
  for (StreamId id = 1; id <= 3; ++id) {
    EXPECT_EQ(
        driver.outcome(held[static_cast<std::size_t>(id - 1)]).tokens,
        FakeAgent::expected_tokens(counting(static_cast<int>(id) * 100, 96), 150, kFairVocab));
  }
}

// A preempted stream that does not fit is first in order, but does not block other connections.
TEST(Fairness, APreemptedStreamThatDoesNotFitDelaysNoOtherConnection) {
  SchedulerDriver driver(small_agent(26), small_options());
  for (StreamId id = 1; id <= 3; ++id) {
    driver.generate(id, counting(static_cast<int>(id) * 100, 60), 190, 1);
  }
  while (driver.scheduler().counters().num_preemptions == 0) ASSERT_TRUE(driver.step());
  const auto other = driver.generate(100, counting(700, 4), 5, 2);
  EXPECT_LE(steps_to_token(driver, other, 2 * kStepsToRun), kStepsToRun);
  driver.run();
}

// A prompt that needs most of the blocks, beside short streams that always find some: others may
// pass it for 256 steps, and then those that run end. Each short one comes on a connection of its
// own, or goes on with what its connection's last one generated.
TEST(Fairness, ShortStreamsWithoutEndDoNotStarveALongPrompt) {
  constexpr int kNumTokens = 90;
  constexpr int kStepsMax = 256 + 2 * kNumTokens;
  for (const bool goes_on : {false, true}) {
    SchedulerDriver driver(small_agent(24), small_options());
    std::vector<StreamKey> others;
    ConnectionId next = 100;
    const auto refill = [&] {
      for (StreamKey& key : others) {
        if (!driver.outcome(key).done) continue;
        const int first = static_cast<int>(key.connection) % 400;
        auto prompt = counting(first, 4);
        if (!goes_on) key.connection = next++;
        const auto& tokens = driver.outcome(key).tokens;
        if (goes_on) prompt.insert(prompt.end(), tokens.begin(), tokens.end());
        key = driver.generate(key.stream + 1, std::move(prompt), kNumTokens, key.connection);
      }
    };
    for (int i = 0; i < 6; ++i) {
      const ConnectionId connection = next++;
      others.push_back(driver.generate(1, counting(static_cast<int>(connection) % 400, 4),
                                       kNumTokens - 15 * i, connection));
    }
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(driver.step());
    const StreamKey large = driver.generate(1, counting(500, 230), 5, 1);
    int num_steps = 0;
    for (; driver.outcome(large).tokens.empty() && num_steps < 2000; ++num_steps) {
      refill();
      ASSERT_TRUE(driver.step());
    }
    EXPECT_LE(num_steps, kStepsMax) << "goes on: " << goes_on;
  }
}

TEST(Fairness, ALonePromptIsBoundedByWhatTheCallerAllows) {
  SchedulerOptions options = small_options();
  options.batch.max_tokens = 512;
  SchedulerDriver driver(small_agent(), options);
  driver.generate(1, counting(0, 250), 1);
  driver.step({.alone = 100});
  EXPECT_EQ(driver.last_plan().num_tokens, 100);
  driver.step({.alone = 1});
  EXPECT_EQ(driver.last_plan().num_tokens, 2 * kBlockSize) << "it goes on all the same";
  driver.step();
  EXPECT_EQ(driver.last_plan().num_tokens, 250 - 132);
}

TEST(Fairness, AShortPromptDoesNotWaitForALongOne) {
  SchedulerDriver driver(small_agent(), small_options());
  const auto long_one = driver.generate(1, counting(0, 240), 1, 1);
  driver.step({.alone = 32});
  const auto short_one = driver.generate(2, counting(500, 30), 1, 2);
  const auto equal_one = driver.generate(3, counting(700, 240), 1, 3);
  for (int i = 0; i < 2; ++i) {
    driver.step({.alone = 32});
    ASSERT_EQ(driver.last_plan().rows.size(), 2U);
    for (const PlanRow& row : driver.last_plan().rows) EXPECT_GE(row.num_tokens, 14);
  }
  EXPECT_TRUE(driver.outcome(short_one).done);
  for (int i = 0; i < 6; ++i) driver.step({.alone = 32});
  EXPECT_TRUE(driver.outcome(long_one).done) << "what is as long waits";
  driver.run();
  EXPECT_TRUE(driver.outcome(equal_one).done);
}

// Seven wait for the first one's prefix; once that is computed they are almost cached.
TEST(Fairness, WhatHasBeenCachedMeanwhileIsAdmittedAsCached) {
  SchedulerOptions options = small_options();
  options.batch.max_tokens = 512;
  SchedulerDriver driver(small_agent(), options);
  driver.generate(1, counting(900, 4), 100, 1);
  driver.step();
  const auto prompt = counting(0, 200);
  std::vector<StreamKey> keys;
  for (int i = 0; i < 8; ++i) {
    keys.push_back(driver.score(10 + i, prompt, counting(600 + 10 * i, 9), 2));
  }
  const auto all_done = [&] {
    return std::ranges::all_of(keys, [&](StreamKey key) { return driver.outcome(key).done; });
  };
  int steps = 0;
  for (; !all_done() && steps < 100; ++steps) driver.step({.prefill = 32});
  EXPECT_LE(steps, 208 / 32 + 1 + 1) << "seven times nine tokens in one step";
}

TEST(Fairness, WhatHasBeenEvictedMeanwhileIsAPromptAgain) {
  SchedulerOptions options = small_options();
  options.batch.max_sequences = 2;
  SchedulerDriver driver(small_agent(18), options);
  const auto prompt = counting(0, 64);
  driver.generate(1, prompt, 1);
  driver.run();
  driver.generate(2, counting(300, 100), 30);
  const auto first = driver.generate(3, counting(500, 100), 20);
  for (int i = 0; i < 8; ++i) driver.step();
  const auto waiting = driver.generate(4, prompt, 1);
  while (!driver.outcome(first).done) ASSERT_TRUE(driver.step());
  while (!driver.outcome(waiting).done) {
    ASSERT_TRUE(driver.step());
    EXPECT_LE(driver.last_plan().num_tokens, 1 + 2 * kBlockSize);
  }
  driver.run();
}

// A connection that was served much while others waited has a debt when it comes back, even after
// 5,000 others came and went.
TEST(Fairness, ConnectionsThatComeAndGoAreForgotten) {
  SchedulerOptions options = small_options();
  options.batch.max_sequences = 1;
  SchedulerDriver driver(small_agent(), options);
  driver.generate(1, counting(0, 4), 200, 1);
  driver.step();
  for (ConnectionId c = 10; c < 5010; ++c) {
    const auto key = driver.generate(1, counting(50, 4), 1, c);
    EXPECT_TRUE(driver.scheduler().remove(key));
  }
  const auto a = driver.generate(2, counting(100, 4), 1, 1);
  const auto b = driver.generate(3, counting(200, 4), 1, 2);
  while (!driver.outcome(b).done) ASSERT_TRUE(driver.step());
  EXPECT_FALSE(driver.outcome(a).done) << "the one served least comes first";
  driver.run();
}

}  // namespace
}  // namespace lmtp::scheduler

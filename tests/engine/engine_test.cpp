#include "lmtp/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>

#include "counting.h"
#include "fake_agent.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::kEndless;
using testing::RecordingSink;
using testing::StepGate;

constexpr int kVocab = 1000;
constexpr int kContext = 512;

EngineOptions checked_options() {
  EngineOptions options;
  options.debug.check_invariants = true;
  return options;
}

ModelLimits limits(int context_length = kContext) {
  return {.vocab_size = kVocab, .context_length = context_length, .eos_ids = {}};
}
ModelLimits endless_limits() { return limits(testing::kEndlessContext); }

// With an agent that runs ahead, and with one that does not.
class EngineTest : public ::testing::TestWithParam<bool> {
 protected:
  static FakeAgentOptions agent_options() {
    FakeAgentOptions options;
    options.vocab_size = kVocab;
    options.num_blocks = 128;
    options.runs_ahead = GetParam();
    return options;
  }
  static FakeAgentOptions endless_options() {
    FakeAgentOptions options = agent_options();
    options.num_blocks = testing::kEndlessBlocks;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Agents, EngineTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

Request generate(std::shared_ptr<EventSink> sink, ConnectionId connection, StreamId id,
                 std::vector<TokenId> prompt, int max_tokens) {
  Request request;
  request.key = {connection, id};
  request.sink = std::move(sink);
  request.prompt = std::move(prompt);
  request.params.max_tokens = max_tokens;
  return request;
}

TEST(EngineDeath, LimitsThatNothingKeepsAreOurBug) {
  using scheduler::DebugOptions;
  for (int DebugOptions::*const limit :
       {&DebugOptions::max_prefill_ms, &DebugOptions::max_alone_ms}) {
    EngineOptions options;
    options.debug.*limit = -1;
    EXPECT_DEATH(Engine(testing::make_fake_agent({}), limits(), options),
                 "check failed: options.debug.max_");
  }
  EngineOptions none;
  none.max_concurrent_requests = 0;
  EXPECT_DEATH(Engine(testing::make_fake_agent({}), limits(), none),
               "check failed: options.max_concurrent_requests");
  EngineOptions options;
  options.batch.max_tokens = 0;
  EXPECT_DEATH(Engine(testing::make_fake_agent({}), limits(), options),
               "check failed: options.batch.max_tokens");
}

TEST_P(EngineTest, TheFirstTokenSaysHowMuchOfThePromptWasCached) {
  Engine engine(testing::make_fake_agent(agent_options()), limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  for (StreamId id = 0; id < 2; ++id) {
    ASSERT_TRUE(engine.instance().submit(generate(sink, 1, id, counting(1, 40), 3)));
    EXPECT_EQ(sink->wait_done(id).num_cached, (std::vector<int>{id == 0 ? 0 : 39, -1, -1}));
  }
}

TEST_P(EngineTest, ServesStreamsOfManyConnectionsAtOnce) {
  Engine engine(testing::make_fake_agent(agent_options()), limits(), checked_options());
  std::vector<std::thread> clients;
  std::atomic<int> wrong = 0;
  for (ConnectionId c = 1; c <= 8; ++c) {
    clients.emplace_back([&engine, &wrong, c] {
      const auto sink = std::make_shared<RecordingSink>();
      for (StreamId id = 0; id < 8; ++id) {
        const auto prompt = counting(static_cast<int>(c) * 50 + static_cast<int>(id), 20);
        if (!engine.instance().submit(generate(sink, c, id, prompt, 30))) ++wrong;
      }
      for (StreamId id = 0; id < 8; ++id) {
        const auto prompt = counting(static_cast<int>(c) * 50 + static_cast<int>(id), 20);
        const auto stream = sink->wait_done(id);
        if (stream.tokens != FakeAgent::expected_tokens(prompt, 30, kVocab)) ++wrong;
        if (stream.event_after_end) ++wrong;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.num_steps_ahead > 0, GetParam());
  EXPECT_LT(stats.num_steps_ahead, stats.num_steps);
  EXPECT_EQ(stats.num_generated_tokens, 8 * 8 * 30);
  EXPECT_EQ(stats.num_blocks_pinned, 0);
  EXPECT_EQ(stats.num_blocks_free + stats.num_blocks_evictable, 127);
}

TEST_P(EngineTest, PrefillBesideADecodeIsBoundedByItsTimeWhereThatIsBounded) {
  for (const int max_prefill_ms : {1, 0}) {
    const auto sink = std::make_shared<RecordingSink>();
    Engine* running = nullptr;
    int num_steps = 0;
    int most_tokens = 0;  // of a step with both streams
    FakeAgentOptions agent = agent_options();
    agent.before_step = [&](const scheduler::StepPlan& plan) -> Result<void> {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that no token takes less
      if (++num_steps == 2) {
        EXPECT_TRUE(running->instance().submit(generate(sink, 1, 2, counting(500, 300), 1)));
      }
      if (plan.rows.size() == 2) most_tokens = std::max(most_tokens, plan.num_tokens);
      return {};
    };
    EngineOptions options = checked_options();
    options.debug.max_prefill_ms = max_prefill_ms;
    Engine engine(testing::make_fake_agent(agent), limits(), options);
    running = &engine;
    ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 40), 40)));
    sink->wait_done(1);
    sink->wait_done(2);
    EXPECT_EQ(most_tokens, 1 + (max_prefill_ms == 0 ? 512 / 4 : kBlockSize));
  }
}

TEST_P(EngineTest, ForksAndBacktracksOfAStreamThatRuns) {
  const auto sink = std::make_shared<RecordingSink>();
  Engine* running = nullptr;
  int num_steps = 0;
  FakeAgentOptions agent = agent_options();
  agent.before_step = [&](const scheduler::StepPlan&) -> Result<void> {
    if (++num_steps != 30) return {};
    std::vector<Request> forks(2);
    for (StreamId id : {2, 3}) {
      Request& fork = forks[static_cast<std::size_t>(id) - 2];
      fork.key = {1, id};
      fork.sink = sink;
      fork.fork = std::make_shared<ForkOf>(ForkOf{{1, 1}, {}});
    }
    EXPECT_TRUE(running->instance().submit_forks(forks));
    const EngineInstance instance = running->instance();
    EXPECT_TRUE(instance.backtrack({{1, 1}, 10, {}, sink}));
    EXPECT_TRUE(instance.backtrack({{1, 1}, 1000, {}, sink}));
    EXPECT_TRUE(instance.backtrack({{1, 3}, 0, {5, kVocab}, sink}));
    EXPECT_TRUE(instance.backtrack({{1, 77}, 1, {}, sink}));
    return {};
  };
  Engine engine(testing::make_fake_agent(agent), limits(), checked_options());
  running = &engine;
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 40), 60)));
  const auto tokens = FakeAgent::expected_tokens(counting(0, 40), 60, kVocab);
  EXPECT_EQ(sink->wait_done(1).tokens, tokens);
  EXPECT_EQ(sink->wait_done(1).refused.substr(0, 14), "drop: is 1000;");
  for (const StreamId id : {2, 3}) {
    const auto fork = sink->wait_done(id);
    EXPECT_GE(fork.forked_at, 29);
    EXPECT_EQ(fork.forked_prompt, 40);
    EXPECT_EQ(fork.tokens, std::vector<TokenId>(tokens.begin() + fork.forked_at, tokens.end()));
  }
  EXPECT_EQ(sink->wait_done(2).forked_at, sink->wait_done(3).forked_at);
  EXPECT_EQ(sink->wait_done(3).refused.substr(0, 10), "append[1]:");
  std::vector<Request> late(1);
  late[0].key = {1, 9};
  late[0].sink = sink;
  late[0].fork = std::make_shared<ForkOf>(ForkOf{{1, 1}, {}});
  ASSERT_TRUE(engine.instance().submit_forks(late));
  EXPECT_EQ(sink->wait_done(9).error, "stream_id: 1 is not live; allowed are live streams");
  EXPECT_EQ(engine.stats().num_prompt_tokens, 40);
}

TEST_P(EngineTest, OneDeliveryAStepForAllStreamsOfAConnection) {
  const FakeAgentOptions options = agent_options();
  Engine engine(testing::make_fake_agent(options), limits(), checked_options());
  StepGate gate(options.steps);  // until all four are queued
  const auto sink = std::make_shared<RecordingSink>();
  for (StreamId id = 0; id < 4; ++id) {
    ASSERT_TRUE(engine.instance().submit(
        generate(sink, 1, id, counting(static_cast<int>(id) * 100, 5), 10)));
  }
  gate.open();
  for (StreamId id = 0; id < 4; ++id) sink->wait_done(id);
  // Forty tokens; the first step may have gone by with the first stream alone.
  EXPECT_LE(sink->num_deliveries(), 10 + 1);
}

TEST_P(EngineTest, CancelEndsAStreamAndFreesItsBlocks) {
  const FakeAgentOptions options = agent_options();
  Engine engine(testing::make_fake_agent(options), limits(), checked_options());
  StepGate gate(options.steps);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 400)));
  gate.let(5);
  sink->wait_tokens(1, 3);
  engine.instance().cancel({1, 1});
  engine.instance().cancel({1, 1});
  engine.instance().cancel({1, 77});  // never heard of
  gate.open();
  const auto stream = sink->wait_done(1);
  EXPECT_EQ(stream.error, "cancelled");
  EXPECT_LE(stream.tokens.size(), 5U + 2) << "the steps that were under way";
  EXPECT_EQ(engine.stats().num_blocks_pinned, 0);
  // The id may be used again.
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 2)));
  EXPECT_EQ(sink->wait_done(2).tokens.size(), 2U);
}

TEST_P(EngineTest, RefusesBeyondItsLimitOfRequests) {
  EngineOptions options = checked_options();
  options.max_concurrent_requests = 4;
  Engine engine(testing::make_fake_agent(agent_options()), limits(), options);
  const auto sink = std::make_shared<RecordingSink>();
  std::vector<Request> waiting;
  for (StreamId id = 0; id < 6; ++id) waiting.push_back(generate(sink, 1, id, counting(10, 5), 2));
  ASSERT_TRUE(engine.instance().submit_all(waiting));
  for (const StreamId id : {4, 5}) {
    EXPECT_TRUE(sink->wait_done(id).error.starts_with("overloaded: 4 requests"));
  }
  for (const StreamId id : {0, 1, 2, 3}) EXPECT_EQ(sink->wait_done(id).tokens.size(), 2U) << id;
}

// Requests that are handed over together are in the first step together.
TEST_P(EngineTest, WhatComesTogetherStartsTogether) {
  std::atomic<std::size_t> rows_of_first = 0;
  FakeAgentOptions agent = agent_options();
  agent.before_step = [&](const scheduler::StepPlan& plan) -> Result<void> {
    std::size_t none = 0;
    rows_of_first.compare_exchange_strong(none, plan.rows.size());
    return {};
  };
  Engine engine(testing::make_fake_agent(agent), limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  std::vector<Request> waiting;
  for (StreamId id = 0; id < 6; ++id) waiting.push_back(generate(sink, 1, id, counting(10, 5), 2));
  ASSERT_TRUE(engine.instance().submit_all(waiting));
  for (StreamId id = 0; id < 6; ++id) sink->wait_done(id);
  EXPECT_EQ(rows_of_first, 6U);
}

TEST_P(EngineTest, AQueueThatIsFullRefusesAtOnce) {
  const FakeAgentOptions agent = agent_options();
  EngineOptions options = checked_options();
  options.max_concurrent_requests = 4;
  Engine engine(testing::make_fake_agent(agent), limits(), options);
  StepGate gate(agent.steps);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 0, counting(10, 5), 2)));
  ASSERT_TRUE(gate.wait_until_inside());  // what comes now is queued
  for (StreamId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(engine.instance().submit(generate(sink, 1, id, counting(10, 5), 2)));
  }
  EXPECT_FALSE(engine.instance().submit(generate(sink, 1, 5, counting(10, 5), 2)));
  gate.open();
  for (StreamId id = 0; id <= 4; ++id) EXPECT_TRUE(sink->wait_done(id).done) << id;
}

TEST_P(EngineTest, AnExceptionInAStepIsAFailedStep) {
  FakeAgentOptions options = agent_options();
  auto steps = std::make_shared<std::atomic<int>>(0);
  options.before_step = [steps](const auto&) -> Result<void> {
    if (++*steps == 2) throw std::runtime_error("bad thing");
    return {};
  };
  Engine engine(testing::make_fake_agent(options), limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 10)));
  EXPECT_EQ(sink->wait_done(1).error, "the step failed: bad thing");
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 10)));
  EXPECT_EQ(sink->wait_done(2).tokens.size(), 10U);
}

TEST_P(EngineTest, CountersAreThereWhenTheLastEventIs) {
  Engine engine(testing::make_fake_agent(agent_options()), limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  Request request;
  request.key = {1, 1};
  request.sink = sink;
  request.kind = RequestKind::kScore;
  request.scored = {7};  // answered without a step
  ASSERT_TRUE(engine.instance().submit(std::move(request)));
  EXPECT_EQ(sink->wait_done(1).logprobs, std::vector<float>{0.0F});
  EXPECT_EQ(engine.stats().num_scored_tokens, 1);
}

TEST_P(EngineTest, AFailedStepIsAnsweredAndTheNextRuns) {
  FakeAgentOptions options = agent_options();
  auto steps = std::make_shared<std::atomic<int>>(0);
  options.before_step = [steps](const auto&) -> Result<void> {
    if (++*steps == 2) return Error{ErrorCode::kInternal, "device lost"};
    return {};
  };
  Engine engine(testing::make_fake_agent(options), limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 10)));
  EXPECT_EQ(sink->wait_done(1).error, "the step failed: device lost");
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 10)));
  EXPECT_EQ(sink->wait_done(2).tokens.size(), 10U);
  EXPECT_EQ(engine.stats().num_failed_steps, 1);
}

// One that cannot be told what it waits for must not go on as if it had been.
TEST_P(EngineTest, AConnectionThatCannotBeToldEndsAndOthersGoOn) {
  class ThrowingSink : public RecordingSink {
   public:
    void deliver(std::span<StreamEvent> events) override {
      if (--deliveries_left == 0) throw std::bad_alloc();
      RecordingSink::deliver(events);
    }
    std::atomic<int> deliveries_left = 4;
  };
  Engine engine(testing::make_fake_agent(agent_options()), limits(), checked_options());
  const auto throwing = std::make_shared<ThrowingSink>();
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(throwing, 1, 1, counting(0, 5), 100)));
  ASSERT_TRUE(engine.instance().submit(generate(sink, 2, 1, counting(9, 5), 100)));
  const auto stream = throwing->wait_done(1);
  EXPECT_EQ(stream.error, "internal: tokens of this stream were lost");
  EXPECT_LT(stream.tokens.size(), 100U);
  EXPECT_EQ(sink->wait_done(1).tokens, FakeAgent::expected_tokens(counting(9, 5), 100, kVocab));
  // The last delivery has a stream's end in it.
  throwing->deliveries_left = 1;
  ASSERT_TRUE(engine.instance().submit(generate(throwing, 1, 2, counting(0, 5), 1)));
  EXPECT_EQ(throwing->wait_done(2).error, "internal: the end of this stream was lost");
}

TEST_P(EngineTest, TellsItsTimeFromThatOfTheDevice) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> begun;  // the steps
  FakeAgentOptions options = agent_options();
  options.before_step = [&](const auto&) -> Result<void> {
    begun.push_back(Clock::now());
    return {};
  };
  options.device_wait = std::chrono::microseconds(700);
  const Clock::time_point before = Clock::now();
  Engine engine(testing::make_fake_agent(options), limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 10)));
  sink->wait_done(1);
  engine.stop(0);
  const EngineStats stats = engine.stats();
  const auto micros = [](Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  };
  EXPECT_EQ(stats.device_wait_us, 700 * stats.num_steps);
  EXPECT_GE(stats.busy_us, micros(begun.back() - begun.front()));
  EXPECT_LE(stats.busy_us, micros(Clock::now() - before));
}

// What it had is answered, what it had not begun comes back, and nothing is taken any more.
TEST_P(EngineTest, WithoutItsDeviceItEnds) {
  auto lost = std::make_shared<std::atomic<bool>>(false);
  FakeAgentOptions options = agent_options();
  options.before_step = [lost](const auto&) -> Result<void> {
    *lost = true;
    return Error{ErrorCode::kInternal, "an illegal address"};
  };
  options.is_lost = [lost] { return lost->load(); };
  std::promise<std::vector<Request>> back;
  Engine engine(testing::make_fake_agent(options), limits(), checked_options(),
                [&](std::vector<Request> requests) { back.set_value(std::move(requests)); });
  StepGate gate(options.steps);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 400)));
  ASSERT_TRUE(gate.wait_until_inside());  // what comes now is queued
  for (const StreamId id : {2, 3}) {
    ASSERT_TRUE(engine.instance().submit(generate(sink, 1, id, counting(7, 3), 10)));
  }
  EXPECT_TRUE(engine.instance().cancel({1, 3}));
  Request fork = generate(sink, 1, 5, {}, 0);  // of which there may be another one by then
  fork.fork = std::make_shared<const ForkOf>(ForkOf{{1, 1}, {}});
  std::vector<Request> forks;
  forks.push_back(std::move(fork));
  ASSERT_TRUE(engine.instance().submit_forks(forks));
  for (StreamId id : {1, 2}) EXPECT_TRUE(engine.instance().backtrack({{1, id}, 1, {}, sink}));
  gate.open();
  const std::vector<Request> unanswered = back.get_future().get();
  EXPECT_EQ(sink->wait_done(1).error, "the step failed: an illegal address");
  EXPECT_EQ(sink->wait_done(3).error, "cancelled");
  EXPECT_NE(sink->wait_done(5).error.find("the device was lost"), std::string::npos);
  EXPECT_EQ(sink->wait_tokens(1, 0).refused, "its stream has ended");
  EXPECT_TRUE(sink->wait_tokens(2, 0).refused.starts_with("the device was lost")) << "it lives";
  ASSERT_EQ(unanswered.size(), 1U);
  EXPECT_EQ(unanswered[0].key.stream, 2);
  EXPECT_EQ(unanswered[0].prompt, counting(7, 3));
  EXPECT_EQ(unanswered[0].sink, sink);
  Request late = generate(sink, 1, 4, counting(7, 3), 10);
  EXPECT_EQ(engine.instance().submit(std::move(late)).error().code, ErrorCode::kStopping);
  EXPECT_EQ(late.prompt, counting(7, 3)) << "as it was";  // NOLINT(bugprone-use-after-move)
  EXPECT_FALSE(engine.instance().cancel({1, 2}));
  EXPECT_TRUE(engine.stats().stopped);
}

// Ends its stream when the test says so.
class EndsWhenTold : public StopChecker {
 public:
  bool push(TokenId /*token*/, bool /*may_stop*/) override { return told; }
  std::unique_ptr<StopChecker> restarted(std::span<const TokenId> /*before*/,
                                         std::span<const TokenId> /*generated*/) const override {
    return nullptr;
  }
  std::atomic<bool> told = false;
};

TEST_P(EngineTest, StopLetsRunningStreamsFinishWithinTheGrace) {
  Engine engine(testing::make_fake_agent(endless_options()), endless_limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  const auto end = std::make_shared<EndsWhenTold>();
  Request request = generate(sink, 1, 1, counting(0, 5), kEndless);
  request.stops = end;
  request.wants_notices = true;
  ASSERT_TRUE(engine.instance().submit(std::move(request)));
  sink->wait_tokens(1, 1);
  std::thread stop([&] { engine.stop(600'000); });
  EXPECT_FALSE(sink->wait_notice(1).notices.empty()) << "that the engine stops";
  EXPECT_FALSE(sink->wait_tokens(1, 1).done);
  end->told = true;
  stop.join();
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(sink->wait_done(1).finish, FinishReason::kStop);
  EXPECT_FALSE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 40)));
}

TEST_P(EngineTest, StopEndsWhatIsNotDoneWithinTheGrace) {
  Engine engine(testing::make_fake_agent(endless_options()), endless_limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), kEndless)));
  sink->wait_tokens(1, 1);
  engine.stop(20);
  EXPECT_EQ(sink->wait_done(1).error, "the server is shutting down");
}

TEST_P(EngineTest, StopWithoutGraceAnswersEveryStream) {
  Engine engine(testing::make_fake_agent(endless_options()), endless_limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), kEndless)));
  sink->wait_tokens(1, 1);
  engine.stop(0);
  EXPECT_EQ(sink->wait_done(1).error, "the server is shutting down");
}

TEST_P(EngineTest, AGivenSeedArrivesAndAMissingOneIsFresh) {
  FakeAgentOptions options = agent_options();
  struct Seeds {
    std::mutex mutex;
    std::map<StreamId, std::uint64_t> by_stream;
  };
  auto seeds = std::make_shared<Seeds>();
  options.before_step = [seeds](const scheduler::StepPlan& plan) -> Result<void> {
    const std::lock_guard lock(seeds->mutex);
    for (const auto& start : plan.changes.started) {
      seeds->by_stream[start.key.stream] = start.params.seed;
    }
    return {};
  };
  Engine engine(testing::make_fake_agent(options), limits(), checked_options());
  const auto sink = std::make_shared<RecordingSink>();
  for (StreamId id = 1; id <= 3; ++id) {
    Request request = generate(sink, 1, id, counting(0, 5), 1);
    request.params.seed = 1234;
    request.params.has_seed = id == 1;
    ASSERT_TRUE(engine.instance().submit(std::move(request)));
    sink->wait_done(id);
  }
  EXPECT_EQ(seeds->by_stream[1], 1234U);
  EXPECT_NE(seeds->by_stream[2], 1234U);
  EXPECT_NE(seeds->by_stream[2], seeds->by_stream[3]);
}

}  // namespace
}  // namespace lmtp::engine

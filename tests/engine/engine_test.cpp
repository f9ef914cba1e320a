#include "lmtp/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "fake_agent.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::RecordingSink;

constexpr int kVocab = 1000;
constexpr int kContext = 512;

EngineOptions checked_options() {
  EngineOptions options;
  options.debug.check_invariants = true;
  return options;
}

ModelLimits limits() { return {.vocab_size = kVocab, .context_length = kContext, .eos_ids = {}}; }

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
};

INSTANTIATE_TEST_SUITE_P(Agents, EngineTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

std::vector<TokenId> counting(int first, int count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Request generate(std::shared_ptr<EventSink> sink, ConnectionId connection, StreamId id,
                 std::vector<TokenId> prompt, int max_tokens) {
  Request request;
  request.key = {connection, id};
  request.sink = std::move(sink);
  request.prompt = std::move(prompt);
  request.params.max_tokens = max_tokens;
  return request;
}

void ignore_outcome(const Result<void>&) {}

TEST(EngineDeath, LimitsThatNothingKeepsAreOurBug) {
  for (int EngineOptions::*const limit :
       {&EngineOptions::max_prefill_ms, &EngineOptions::max_alone_ms,
        &EngineOptions::max_concurrent_requests}) {
    EngineOptions options;
    options.*limit = -1;
    EXPECT_DEATH(Engine(limits(), options, testing::fake_agent_factory({}), ignore_outcome),
                 "check failed: options.max_");
  }
  EngineOptions options;
  options.batch.max_tokens = 0;
  EXPECT_DEATH(Engine(limits(), options, testing::fake_agent_factory({}), ignore_outcome),
               "check failed: options.batch.max_tokens");
}

TEST_P(EngineTest, ServesStreamsOfManyConnectionsAtOnce) {
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(agent_options()),
                ignore_outcome);
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
    options.max_prefill_ms = max_prefill_ms;
    std::promise<void> loaded;
    Engine engine(limits(), options, testing::fake_agent_factory(agent),
                  [&](const Result<void>&) { loaded.set_value(); });
    loaded.get_future().wait();
    running = &engine;
    ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 40), 40)));
    sink->wait_done(1);
    sink->wait_done(2);
    EXPECT_EQ(most_tokens, 1 + (max_prefill_ms == 0 ? 512 / 4 : 2 * kBlockSize));
  }
}

TEST_P(EngineTest, OneDeliveryAStepForAllStreamsOfAConnection) {
  std::promise<void> go;
  FakeAgentOptions options = agent_options();
  options.before_step = [released = go.get_future().share()](const auto&) -> Result<void> {
    released.wait();  // until all four are queued
    return {};
  };
  std::promise<void> loaded;
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options),
                [&](const Result<void>&) { loaded.set_value(); });
  loaded.get_future().wait();  // no loading notices from here on
  const auto sink = std::make_shared<RecordingSink>();
  for (StreamId id = 0; id < 4; ++id) {
    ASSERT_TRUE(engine.instance().submit(
        generate(sink, 1, id, counting(static_cast<int>(id) * 100, 5), 10)));
  }
  go.set_value();
  for (StreamId id = 0; id < 4; ++id) sink->wait_done(id);
  // Forty tokens; the first step may have gone by with the first stream alone.
  EXPECT_LE(sink->num_deliveries(), 10 + 1);
}

TEST_P(EngineTest, RequestsWaitForTheModelAndAreToldSo) {
  std::promise<void> loaded;
  const scheduler::AgentFactory factory = [&](const scheduler::LoadProgress& progress)
      -> Result<std::unique_ptr<scheduler::ModelAgent>> {
    progress(40);
    loaded.get_future().wait();
    return std::unique_ptr<scheduler::ModelAgent>(std::make_unique<FakeAgent>(agent_options()));
  };
  std::promise<bool> outcome;
  Engine engine(limits(), checked_options(), factory,
                [&](const Result<void>& result) { outcome.set_value(result.ok()); });
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 3)));
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 3)));
  EXPECT_GT(sink->wait_loading(1).num_loading, 0);
  EXPECT_EQ(engine.stats().state, EngineState::kLoading);
  engine.instance().cancel({1, 2});
  EXPECT_EQ(sink->wait_done(2).error, "cancelled");
  loaded.set_value();
  EXPECT_TRUE(outcome.get_future().get());
  EXPECT_EQ(sink->wait_done(1).tokens, FakeAgent::expected_tokens(counting(0, 5), 3, kVocab));
}

TEST_P(EngineTest, AFailedLoadAnswersThoseWhoWaitAndThoseWhoCome) {
  std::promise<void> fail;
  const scheduler::AgentFactory factory =
      [&](const scheduler::LoadProgress&) -> Result<std::unique_ptr<scheduler::ModelAgent>> {
    fail.get_future().wait();
    return Error{ErrorCode::kInternal, "model.safetensors: is truncated"};
  };
  std::promise<std::string> outcome;
  Engine engine(limits(), checked_options(), factory, [&](const Result<void>& result) {
    outcome.set_value(result ? "" : result.error().message);
  });
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 3)));
  fail.set_value();
  EXPECT_EQ(outcome.get_future().get(), "model.safetensors: is truncated");
  EXPECT_EQ(sink->wait_done(1).error, "model.safetensors: is truncated");
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 3)));
  EXPECT_EQ(sink->wait_done(2).error, "model.safetensors: is truncated");
}

TEST_P(EngineTest, CancelEndsAStreamAndFreesItsBlocks) {
  FakeAgentOptions options = agent_options();
  options.step_time = std::chrono::milliseconds(1);
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 400)));
  sink->wait_tokens(1, 3);
  engine.instance().cancel({1, 1});
  engine.instance().cancel({1, 1});
  engine.instance().cancel({1, 77});  // never heard of
  const auto stream = sink->wait_done(1);
  EXPECT_EQ(stream.error, "cancelled");
  EXPECT_LT(stream.tokens.size(), 400U);
  EXPECT_EQ(engine.stats().num_blocks_pinned, 0);
  // The id may be used again.
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 2)));
  EXPECT_EQ(sink->wait_done(2).tokens.size(), 2U);
}

TEST_P(EngineTest, RefusesBeyondItsLimitOfRequests) {
  std::promise<void> go;
  const scheduler::AgentFactory factory =
      [&](const scheduler::LoadProgress&) -> Result<std::unique_ptr<scheduler::ModelAgent>> {
    go.get_future().wait();
    return std::unique_ptr<scheduler::ModelAgent>(std::make_unique<FakeAgent>(agent_options()));
  };
  EngineOptions options = checked_options();
  options.max_concurrent_requests = 4;
  Engine engine(limits(), options, factory, ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  // While the model is being loaded nothing ends, so the first four and no others are taken in.
  for (StreamId id = 0; id < 4; ++id) {
    ASSERT_TRUE(engine.instance().submit(generate(sink, 1, id, counting(10, 5), 2)));
    sink->wait_loading(id);
  }
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 4, counting(10, 5), 2)));
  EXPECT_TRUE(sink->wait_done(4).error.starts_with("overloaded: 4 requests"));
  engine.instance().cancel({1, 0});
  EXPECT_EQ(sink->wait_done(0).error, "cancelled");
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 5, counting(10, 5), 2)));
  go.set_value();
  for (const StreamId id : {1, 2, 3, 5}) EXPECT_EQ(sink->wait_done(id).tokens.size(), 2U) << id;
}

TEST_P(EngineTest, AQueueThatIsFullRefusesAtOnce) {
  std::promise<void> started;
  std::promise<void> go;
  FakeAgentOptions agent = agent_options();
  auto first = std::make_shared<std::atomic<bool>>(true);
  agent.before_step = [&, first](const auto&) -> Result<void> {
    if (first->exchange(false)) {
      started.set_value();
      go.get_future().wait();
    }
    return {};
  };
  EngineOptions options = checked_options();
  options.max_concurrent_requests = 4;
  Engine engine(limits(), options, testing::fake_agent_factory(agent), ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 0, counting(10, 5), 2)));
  started.get_future().wait();  // the engine is in a step: what comes now is queued
  for (StreamId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(engine.instance().submit(generate(sink, 1, id, counting(10, 5), 2)));
  }
  EXPECT_FALSE(engine.instance().submit(generate(sink, 1, 5, counting(10, 5), 2)));
  go.set_value();
  for (StreamId id = 0; id <= 4; ++id) EXPECT_TRUE(sink->wait_done(id).done) << id;
}

TEST_P(EngineTest, AnExceptionInAStepIsAFailedStep) {
  FakeAgentOptions options = agent_options();
  auto steps = std::make_shared<std::atomic<int>>(0);
  options.before_step = [steps](const auto&) -> Result<void> {
    if (++*steps == 2) throw std::runtime_error("bad thing");
    return {};
  };
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 10)));
  EXPECT_EQ(sink->wait_done(1).error, "the step failed: bad thing");
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 10)));
  EXPECT_EQ(sink->wait_done(2).tokens.size(), 10U);
}

TEST_P(EngineTest, CountersAreThereWhenTheLastEventIs) {
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(agent_options()),
                ignore_outcome);
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
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
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
    void deliver(std::vector<StreamEvent> events) override {
      if (--deliveries_left == 0) throw std::bad_alloc();
      RecordingSink::deliver(std::move(events));
    }
    std::atomic<int> deliveries_left = 4;
  };
  FakeAgentOptions options = agent_options();
  options.step_time = std::chrono::milliseconds(1);
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
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
  FakeAgentOptions options = agent_options();
  options.step_time = std::chrono::milliseconds(2);
  options.device_wait = std::chrono::microseconds(700);
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 10)));
  sink->wait_done(1);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.device_wait_us, 700 * stats.num_steps);
  EXPECT_GE(stats.busy_us, 2000 * stats.num_steps);
}

TEST_P(EngineTest, ALostDeviceIsAnsweredAndTheModelLoadedAgain) {
  FakeAgentOptions options = agent_options();
  auto lost = std::make_shared<std::atomic<bool>>(false);
  auto num_loads = std::make_shared<std::atomic<int>>(0);
  options.step_time = std::chrono::milliseconds(1);
  options.before_step = [lost](const scheduler::StepPlan& plan) -> Result<void> {
    for (const auto& row : plan.rows) {
      if (row.sequence->key.stream == 2) *lost = true;
    }
    if (*lost) return Error{ErrorCode::kInternal, "an illegal address"};
    return {};
  };
  options.is_lost = [lost] { return lost->load(); };
  const scheduler::AgentFactory factory =
      [=](const scheduler::LoadProgress&) -> Result<std::unique_ptr<scheduler::ModelAgent>> {
    *lost = false;
    if (++*num_loads == 3) return Error{ErrorCode::kInternal, "the device does not come back"};
    return std::unique_ptr<scheduler::ModelAgent>(std::make_unique<FakeAgent>(options));
  };
  std::atomic<int> num_outcomes = 0;
  Engine engine(limits(), checked_options(), factory, [&](const Result<void>&) { ++num_outcomes; });
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 400)));
  sink->wait_tokens(1, 1);
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 10)));
  EXPECT_NE(sink->wait_done(1).error, "");
  EXPECT_NE(sink->wait_done(2).error, "");
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 3, counting(0, 5), 10)));
  EXPECT_EQ(sink->wait_done(3).tokens, FakeAgent::expected_tokens(counting(0, 5), 10, kVocab));
  EXPECT_EQ(*num_loads, 2);
  // Once more, and this time it stays away.
  const auto second = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(second, 2, 2, counting(0, 5), 10)));
  EXPECT_NE(second->wait_done(2).error, "");
  ASSERT_TRUE(engine.instance().submit(generate(second, 2, 4, counting(0, 5), 10)));
  EXPECT_EQ(second->wait_done(4).error, "the device does not come back");
  EXPECT_EQ(num_outcomes, 1);
}

TEST_P(EngineTest, StopLetsRunningStreamsFinishWithinTheGrace) {
  FakeAgentOptions options = agent_options();
  options.step_time = std::chrono::milliseconds(1);
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 40)));
  sink->wait_tokens(1, 1);
  engine.stop(60'000);
  EXPECT_EQ(sink->wait_done(1).tokens.size(), 40U);
  EXPECT_FALSE(engine.instance().submit(generate(sink, 1, 2, counting(0, 5), 40)));
}

TEST_P(EngineTest, StopEndsWhatIsNotDoneWithinTheGrace) {
  FakeAgentOptions options = agent_options();
  options.step_time = std::chrono::milliseconds(5);
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 400)));
  sink->wait_tokens(1, 1);
  engine.stop(20);
  EXPECT_EQ(sink->wait_done(1).error, "the server is shutting down");
}

TEST_P(EngineTest, StopWithoutGraceAnswersEveryStream) {
  FakeAgentOptions options = agent_options();
  options.step_time = std::chrono::milliseconds(1);
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 400)));
  sink->wait_tokens(1, 1);
  engine.stop(0);
  EXPECT_EQ(sink->wait_done(1).error, "the server is shutting down");
}

TEST_P(EngineTest, StopEndsALoadingThatNobodyWaitsFor) {
  const scheduler::AgentFactory factory = [](const scheduler::LoadProgress& progress)
      -> Result<std::unique_ptr<scheduler::ModelAgent>> {
    while (progress(1)) std::this_thread::yield();
    return Error{ErrorCode::kInternal, "given up"};
  };
  Engine engine(limits(), checked_options(), factory, ignore_outcome);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine.instance().submit(generate(sink, 1, 1, counting(0, 5), 4)));
  sink->wait_loading(1);
  engine.stop(60'000);
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
    for (const auto& row : plan.rows) {
      seeds->by_stream[row.sequence->key.stream] = row.sequence->params.seed;
    }
    return {};
  };
  Engine engine(limits(), checked_options(), testing::fake_agent_factory(options), ignore_outcome);
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

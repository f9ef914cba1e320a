// What an engine counts of its requests, and when.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "counting.h"
#include "fake_agent.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::RecordingSink;
using testing::StepGate;

constexpr int kMetricsVocab = 1000;
constexpr int kMetricsContext = 512;
constexpr TokenId kFailing = 999;  // a prompt that begins with it fails

std::uint64_t ended(const EngineStats& stats, FinishReason reason) {
  return stats.metrics.num_finished[static_cast<std::size_t>(reason)].value();
}

std::uint64_t ended(const EngineStats& stats, ErrorCode code) {
  return stats.metrics.num_failed[static_cast<std::size_t>(code)].value();
}

std::uint64_t num_ended(const EngineStats& stats) {
  std::uint64_t sum = 0;
  for (const auto& tally : stats.metrics.num_finished) sum += tally.value();
  for (const auto& tally : stats.metrics.num_failed) sum += tally.value();
  return sum;
}

// With an agent that runs ahead, and with one that does not.
class EngineMetricsTest : public ::testing::TestWithParam<bool> {
 protected:
  EngineMetricsTest() {
    agent_.vocab_size = kMetricsVocab;
    agent_.num_blocks = 128;
    agent_.runs_ahead = GetParam();
    agent_.row_fails = [](const scheduler::SlotState& s) { return s.tokens[0] == kFailing; };
    limits_ = {.vocab_size = kMetricsVocab, .context_length = kMetricsContext, .eos_ids = {}};
    options_.debug.check_invariants = true;
  }

  void start() {
    engine_ = std::make_unique<Engine>(testing::make_fake_agent(agent_), limits_, options_);
  }

  Result<void> generate(StreamId id, std::vector<TokenId> prompt, int max_tokens) {
    Request request;
    request.key = {1, id};
    request.sink = sink_;
    request.prompt = std::move(prompt);
    request.params.max_tokens = max_tokens;
    return engine_->instance().submit(std::move(request));
  }

  Result<void> score(StreamId id, std::vector<TokenId> prompt, std::vector<TokenId> scored) {
    Request request;
    request.key = {1, id};
    request.sink = sink_;
    request.kind = RequestKind::kScore;
    request.prompt = std::move(prompt);
    request.scored = std::move(scored);
    return engine_->instance().submit(std::move(request));
  }

  FakeAgentOptions agent_;
  ModelLimits limits_;
  EngineOptions options_;
  const std::shared_ptr<RecordingSink> sink_ = std::make_shared<RecordingSink>();
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Agents, EngineMetricsTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

TEST_P(EngineMetricsTest, EachRequestIsCountedOnceByHowItEnded) {
  const std::vector<TokenId> prompt = counting(0, 20);
  limits_.eos_ids = {FakeAgent::expected_tokens(prompt, 3, kMetricsVocab).back()};
  agent_.on_step = [this](const scheduler::StepPlan& plan, const scheduler::SlotTable& slots) {
    for (const scheduler::PlanRow& row : plan.rows) {
      if (slots.at(row.slot).key.stream != 9 || row.first_position < 12) continue;
      engine_->instance().cancel({1, 9});  // has two tokens
    }
  };
  start();
  for (StreamId id = 1; id <= 3; ++id) {
    ASSERT_TRUE(generate(id, counting(static_cast<int>(id) * 50, 10), 5));
  }
  ASSERT_TRUE(generate(4, prompt, 100));  // ends with its third token
  ASSERT_TRUE(score(5, counting(300, 4), {7, 8, 9}));
  ASSERT_TRUE(score(6, {}, {7, 8}));
  ASSERT_TRUE(score(7, {}, {7}));  // nothing goes through the model for it
  ASSERT_TRUE(generate(8, {kFailing, 1}, 5));
  ASSERT_TRUE(generate(9, counting(400, 10), 480));
  for (StreamId id = 1; id <= 9; ++id) sink_->wait_done(id);

  const EngineStats stats = engine_->stats();
  EXPECT_EQ(ended(stats, FinishReason::kLength), 3U);
  EXPECT_EQ(ended(stats, FinishReason::kStop), 4U);
  EXPECT_EQ(ended(stats, ErrorCode::kInternal), 1U);
  EXPECT_EQ(ended(stats, ErrorCode::kCancelled), 1U);
  EXPECT_EQ(num_ended(stats), 9U);

  const EngineMetrics& metrics = stats.metrics;
  EXPECT_EQ(metrics.queue_time.count(), 8U);           // all but 7
  EXPECT_EQ(metrics.time_to_first_token.count(), 8U);  // all but 8
  const int num_generates = 5;                         // with tokens
  EXPECT_EQ(metrics.inter_token_latency.count(),
            static_cast<std::uint64_t>(stats.num_generated_tokens - num_generates));
  EXPECT_EQ(metrics.request_latency.count(), 7U);
  EXPECT_EQ(metrics.request_prompt_tokens.count(), 7U);
  EXPECT_EQ(metrics.request_prompt_tokens.sum(), 3 * 10 + 20 + 4);
  EXPECT_EQ(metrics.request_generated_tokens.count(), 4U);
  EXPECT_EQ(metrics.request_generated_tokens.sum(), 3 * 5 + 3);
  EXPECT_EQ(metrics.step_tokens.count(), static_cast<std::uint64_t>(stats.num_steps));
  EXPECT_EQ(metrics.step_streams.count(), static_cast<std::uint64_t>(stats.num_steps));
  EXPECT_GE(metrics.step_tokens.sum(), static_cast<double>(stats.num_tokens_computed));
}

// One clock tells all times of a request, and the test knows when its steps began.
TEST_P(EngineMetricsTest, TimesCountFromTheRequestsArrival) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> begun;
  agent_.before_step = [&](const auto&) -> Result<void> {
    begun.push_back(Clock::now());
    return {};
  };
  start();
  Request request;
  request.key = {1, 1};
  request.sink = sink_;
  request.prompt = counting(0, 10);
  request.params.max_tokens = 6;
  request.arrival -= std::chrono::hours(1);  // its model was being loaded, say
  const Clock::time_point arrival = request.arrival;
  ASSERT_TRUE(engine_->instance().submit(std::move(request)));
  sink_->wait_done(1);
  const EngineMetrics metrics = engine_->stats().metrics;
  engine_->stop(0);
  const auto seconds = [&](Clock::time_point time) {
    return std::chrono::duration<double>(time - arrival).count();
  };
  EXPECT_GE(metrics.queue_time.sum(), 3600.0);
  EXPECT_LE(metrics.queue_time.sum(), seconds(begun.front()));
  EXPECT_GE(metrics.time_to_first_token.sum(), seconds(begun.front()));
  EXPECT_EQ(metrics.inter_token_latency.count(), 5U);
  EXPECT_GE(metrics.request_latency.sum(), seconds(begun.at(5)));
  EXPECT_LE(metrics.request_latency.sum(), seconds(Clock::now()));
  EXPECT_DOUBLE_EQ(metrics.request_latency.sum(),
                   metrics.time_to_first_token.sum() + metrics.inter_token_latency.sum());
}

struct FailureCase {
  const char* name;
  ErrorCode code;
  std::function<void(FakeAgentOptions&, EngineOptions&, Engine*&)> arrange;
};

class EngineFailures : public ::testing::TestWithParam<FailureCase> {};

// Stream 1 generates; whatever goes wrong is counted once, under its cause.
TEST_P(EngineFailures, AreCountedByTheirCause) {
  FakeAgentOptions agent;
  EngineOptions options;
  Engine* running = nullptr;
  GetParam().arrange(agent, options, running);
  const auto sink = std::make_shared<RecordingSink>();
  Engine engine(testing::make_fake_agent(agent),
                {.vocab_size = kMetricsVocab, .context_length = kMetricsContext, .eos_ids = {}},
                options);
  running = &engine;
  const auto request = [&](StreamId id) {
    Request made;
    made.key = {1, id};
    made.sink = sink;
    made.prompt = {1, 2, 3};
    made.params.max_tokens = 300;
    return made;
  };
  ASSERT_TRUE(engine.instance().submit(request(1)));
  EXPECT_FALSE(sink->wait_done(1).error.empty());
  const EngineStats stats = engine.stats();
  EXPECT_EQ(ended(stats, GetParam().code), 1U);
  EXPECT_EQ(num_ended(stats), 1U);
}

INSTANTIATE_TEST_SUITE_P(
    Causes, EngineFailures,
    ::testing::Values(
        FailureCase{"AStepThatFails", ErrorCode::kInternal,
                    [](FakeAgentOptions& agent, EngineOptions&, Engine*&) {
                      agent.before_step = [](const scheduler::StepPlan&) -> Result<void> {
                        return Error{ErrorCode::kInternal, "no"};
                      };
                    }},
        FailureCase{"AStepWithoutMemory", ErrorCode::kUnavailable,
                    [](FakeAgentOptions& agent, EngineOptions&, Engine*&) {
                      agent.before_step = [](const scheduler::StepPlan&) -> Result<void> {
                        return Error{ErrorCode::kUnavailable, "no"};
                      };
                    }},
        FailureCase{"AStepThatThrows", ErrorCode::kInternal,
                    [](FakeAgentOptions& agent, EngineOptions&, Engine*&) {
                      agent.before_step = [](const scheduler::StepPlan&) -> Result<void> {
                        throw std::runtime_error("no");
                      };
                    }},
        FailureCase{"ALostDevice", ErrorCode::kDeviceLost,
                    [](FakeAgentOptions& agent, EngineOptions&, Engine*&) {
                      agent.before_step = [](const scheduler::StepPlan&) -> Result<void> {
                        return Error{ErrorCode::kDeviceLost, "no"};
                      };
                      agent.is_lost = [] { return true; };
                    }},
        FailureCase{"ACancel", ErrorCode::kCancelled,
                    [](FakeAgentOptions& agent, EngineOptions&, Engine*& engine) {
                      agent.before_step = [&engine](const scheduler::StepPlan&) -> Result<void> {
                        engine->instance().cancel({1, 1});
                        return {};
                      };
                    }}),
    [](const auto& which) { return which.param.name; });

// Of three at once, one has a place.
TEST_P(EngineMetricsTest, WhatFindsNoPlaceAndWhatAStopEnds) {
  options_.max_concurrent_requests = 1;
  start();
  StepGate gate(agent_.steps);
  ASSERT_TRUE(generate(1, {1, 2, 3}, 500));
  ASSERT_TRUE(gate.wait_until_inside());
  ASSERT_TRUE(generate(2, {1, 2, 3}, 500));   // waits in the queue, whose one place it has
  EXPECT_FALSE(generate(3, {1, 2, 3}, 500));  // the engine never had it
  gate.open();
  EXPECT_FALSE(sink_->wait_done(2).error.empty());
  EXPECT_EQ(ended(engine_->stats(), ErrorCode::kOverloaded), 1U);
  engine_->stop(0);
  sink_->wait_done(1);
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(num_ended(stats), 2U);
  EXPECT_EQ(ended(stats, ErrorCode::kStopping) + ended(stats, FinishReason::kLength), 1U);
}

TEST_P(EngineMetricsTest, WhoFindsNoPlaceIsToldHowLongARequestTakes) {
  options_.max_concurrent_requests = 1;
  start();
  EXPECT_EQ(engine_->instance().expected_wait_ms(), 0) << "none has ended yet";
  Request request;
  request.key = {1, 1};
  request.sink = sink_;
  request.prompt = {1, 2, 3};
  request.params.max_tokens = 10;
  request.arrival -= std::chrono::seconds(2);
  ASSERT_TRUE(engine_->instance().submit(std::move(request)));
  sink_->wait_done(1);
  StepGate gate(agent_.steps);
  ASSERT_TRUE(generate(2, {1, 2, 3}, 500));
  ASSERT_TRUE(gate.wait_until_inside());
  ASSERT_TRUE(generate(3, {1, 2, 3}, 1));  // is queued
  const Result<void> refused = generate(4, {1, 2, 3}, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_GE(refused.error().wait_ms, 2000);
}

}  // namespace
}  // namespace lmtp::engine

// Who waits, who is told, and that a stream is answered once, wherever it is when things change.
#include "request_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_agent.h"
#include "lmtp/engine/model_manager.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using Outcome = RequestGate::Outcome;
using testing::RecordingSink;

constexpr int kVocab = 1000;
constexpr int kContext = 64;
constexpr std::size_t kMaxWaiting = 4;

ModelLimits limits() { return {.vocab_size = kVocab, .context_length = kContext, .eos_ids = {}}; }

struct RequestGateTest : ::testing::Test {
  RequestGate::Answer submit(RequestGate& to, StreamId id, std::vector<TokenId> prompt = {1, 2},
                             ConnectionId connection = 1, bool others_connected = false) {
    Request request;
    request.key = {connection, id};
    request.others_connected = others_connected;
    request.sink = sink;
    request.model = "m";
    request.prompt = std::move(prompt);
    request.params.max_tokens = 3;
    return to.submit(request);
  }
  std::shared_ptr<RequestGate> make_gate() {
    return std::make_shared<RequestGate>(kMaxWaiting, [this] { ++num_unused; });
  }
  std::unique_ptr<Engine> make_engine(testing::FakeAgentOptions options = {}) {
    return std::make_unique<Engine>(limits(), EngineOptions(),
                                    testing::fake_agent_factory(std::move(options)),
                                    [](const Result<void>&) {});
  }
  // The gate's engine, whose first step waits for `go`.
  std::unique_ptr<Engine> open_held_until(std::promise<void>& go) {
    testing::FakeAgentOptions options;
    options.before_step = [released = go.get_future().share()](const auto&) -> Result<void> {
      released.wait();
      return {};
    };
    auto engine = make_engine(options);
    gate->set_limits(limits());
    gate->open(engine->instance());
    return engine;
  }

  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  std::shared_ptr<RequestGate> gate = make_gate();
  std::atomic<int> num_unused = 0;
};

TEST_F(RequestGateTest, ThoseWhoWaitAreToldAtOnceAndThenHandedOver) {
  EXPECT_EQ(submit(*gate, 1).outcome, Outcome::kTaken);
  EXPECT_EQ(sink->wait_loading(1).progress, std::vector<int>{0});
  EXPECT_EQ(sink->wait_loading(1).loading_model, "m");
  EXPECT_EQ(gate->usage().num_waiting, 1U);
  gate->set_limits(limits());
  const auto engine = make_engine();
  gate->open(engine->instance());
  EXPECT_EQ(sink->wait_done(1).tokens, testing::FakeAgent::expected_tokens({1, 2}, 3, kVocab));
  EXPECT_EQ(submit(*gate, 2).outcome, Outcome::kTaken);
  EXPECT_EQ(sink->wait_done(2).tokens.size(), 3U);
  EXPECT_EQ(gate->usage().num_waiting, 0U);
}

TEST_F(RequestGateTest, NoticesAreFewAndNeverGoBack) {
  submit(*gate, 1);
  for (int percent = 0; percent <= 100; ++percent) gate->tell_progress(percent);
  gate->tell_progress(7);
  const std::vector<int> progress = sink->wait_loading(1).progress;
  ASSERT_GE(progress.size(), 2U);
  EXPECT_LE(progress.size(), 50U) << "100 changes in a moment";
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  submit(*gate, 2);
  EXPECT_EQ(sink->wait_loading(2).progress, std::vector<int>{100});
}

TEST_F(RequestGateTest, AFailureAndAStopEndWhatWaits) {
  submit(*gate, 1);
  gate->fail({ErrorCode::kUnavailable, "model: is broken"});
  EXPECT_EQ(sink->wait_done(1).error, "model: is broken");
  EXPECT_TRUE(sink->wait_done(1).model_failed);
  EXPECT_EQ(submit(*gate, 2).outcome, Outcome::kClosed);
  gate->fail({ErrorCode::kUnavailable, "again"});
  EXPECT_EQ(sink->wait_done(1).num_ends, 1);

  const auto other = make_gate();
  submit(*other, 3);
  other->shut({ErrorCode::kUnavailable, "stop"});
  EXPECT_EQ(sink->wait_done(3).error, "stop");
  EXPECT_FALSE(sink->wait_done(3).model_failed);
}

TEST_F(RequestGateTest, MoreThanTheLimitIsRefused) {
  for (StreamId id = 0; id < static_cast<StreamId>(kMaxWaiting); ++id) {
    EXPECT_EQ(submit(*gate, id).outcome, Outcome::kTaken);
  }
  const auto answer = submit(*gate, 99);
  EXPECT_EQ(answer.outcome, Outcome::kRefused);
  EXPECT_NE(answer.error.message.find("overloaded"), std::string::npos) << answer.error.message;
  gate->cancel({1, 0});
  EXPECT_EQ(submit(*gate, 99).outcome, Outcome::kTaken) << "a place has become free";
}

TEST_F(RequestGateTest, AmongOthersAConnectionHoldsThreeQuartersWaitingOrRunning) {
  const auto submit_among_others = [&](StreamId id, ConnectionId connection = 1) {
    return submit(*gate, id, {1, 2}, connection, true);
  };
  for (StreamId id = 1; id <= 3; ++id) EXPECT_EQ(submit_among_others(id).outcome, Outcome::kTaken);
  const auto answer = submit_among_others(4);
  EXPECT_EQ(answer.outcome, Outcome::kRefused);
  EXPECT_NE(answer.error.message.find("three quarters of 4"), std::string::npos)
      << answer.error.message;
  EXPECT_EQ(submit_among_others(5, 2).outcome, Outcome::kTaken);
  gate->cancel({2, 5});
  EXPECT_EQ(submit(*gate, 6).outcome, Outcome::kTaken) << "alone, it may have all";
  gate->cancel({1, 6});

  std::promise<void> go;
  const auto engine = open_held_until(go);
  EXPECT_EQ(submit_among_others(7).outcome, Outcome::kRefused) << "three run";
  EXPECT_EQ(submit_among_others(8, 2).outcome, Outcome::kTaken);
  go.set_value();
  for (StreamId id = 1; id <= 3; ++id) EXPECT_EQ(sink->wait_done(id).error, "");
  EXPECT_EQ(submit_among_others(9).outcome, Outcome::kTaken) << "they have ended";
}

TEST_F(RequestGateTest, TooManyBytesAreRefused) {
  const std::vector<TokenId> half(kWaitingBytesMax / 2 / sizeof(TokenId), 1);
  EXPECT_EQ(submit(*gate, 1, half).outcome, Outcome::kTaken);
  EXPECT_EQ(submit(*gate, 2, half).outcome, Outcome::kTaken);
  EXPECT_EQ(submit(*gate, 3).outcome, Outcome::kRefused);
  gate->cancel({1, 1});
  EXPECT_EQ(submit(*gate, 3).outcome, Outcome::kTaken);
}

TEST_F(RequestGateTest, WhatTheModelCannotServeEndsWhenItIsFound) {
  submit(*gate, 1, {1, kVocab});
  submit(*gate, 2);
  gate->set_limits(limits());
  EXPECT_NE(sink->wait_done(1).error.find("prompt"), std::string::npos);
  EXPECT_FALSE(sink->wait_done(1).model_failed);
  EXPECT_EQ(gate->usage().num_waiting, 1U);
  EXPECT_EQ(submit(*gate, 3, {kVocab}).outcome, Outcome::kRefused);
}

// Processor time of this thread, which others cannot lengthen.
double thread_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

constexpr std::size_t kTokensIn15MiB = (std::size_t{15} << 20) / 2;

TEST_F(RequestGateTest, ARefusalDoesNotTakeTheTimeOfItsPrompt) {
  gate->set_limits(limits());
  const auto engine = make_engine();
  gate->open(engine->instance());
  Request request;
  request.key = {1, 1};
  request.sink = sink;
  request.prompt = std::vector<TokenId>(kTokensIn15MiB, 1);
  double best_ms = 1e9;
  for (int i = 0; i < 20; ++i) {
    const double start = thread_ms();
    EXPECT_EQ(gate->submit(request).outcome, Outcome::kRefused);
    best_ms = std::min(best_ms, thread_ms() - start);
  }
  EXPECT_LT(best_ms, 0.1) << "all of it, and so what of it holds the lock";
}

// What waits under another name of a model that runs is looked at before its gate is touched.
TEST_F(RequestGateTest, WhatARunningModelCannotServeLeavesItsGateAlone) {
  gate->set_limits(limits());
  const auto engine = make_engine();
  gate->open(engine->instance());
  class Probe : public RecordingSink {
   public:
    explicit Probe(RequestGate& probed) : probed_(probed) {}
    void deliver(std::vector<StreamEvent> events) override {
      if (is_last(events.front())) {
        probe = std::async(std::launch::async, [this] { return probed_.usage(); });
        was_free = probe.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
      }
      RecordingSink::deliver(std::move(events));
    }
    std::future<RequestGate::Usage> probe;
    bool was_free = false;

   private:
    RequestGate& probed_;
  };
  const auto probe = std::make_shared<Probe>(*gate);
  sink = probe;
  const auto alias = make_gate();
  EXPECT_EQ(submit(*alias, 1, std::vector<TokenId>(kTokensIn15MiB, 1)).outcome, Outcome::kTaken);
  ASSERT_TRUE(alias->forward_to(gate));
  EXPECT_NE(sink->wait_done(1).error.find("prompt: has"), std::string::npos);
  EXPECT_TRUE(probe->was_free);
}

TEST_F(RequestGateTest, CancelFindsAStreamWhereverItIs) {
  submit(*gate, 1);
  gate->cancel({1, 1});
  EXPECT_EQ(sink->wait_done(1).error, "cancelled");
  EXPECT_EQ(num_unused, 1);
  gate->cancel({1, 1});
  EXPECT_EQ(sink->wait_done(1).num_ends, 1);

  const auto alias = make_gate();
  submit(*alias, 2);
  ASSERT_TRUE(alias->forward_to(gate));
  EXPECT_EQ(gate->usage().num_waiting, 1U);
  alias->cancel({1, 2});
  EXPECT_EQ(sink->wait_done(2).error, "cancelled");
  EXPECT_EQ(submit(*alias, 3).outcome, Outcome::kTaken);
  EXPECT_EQ(gate->usage().num_waiting, 1U);
}

TEST_F(RequestGateTest, AnAliasOfAModelThatIsGoneStillWaits) {
  const auto alias = make_gate();
  submit(*alias, 1);
  gate->fail({ErrorCode::kUnavailable, "gone"});
  EXPECT_FALSE(alias->forward_to(gate));
  EXPECT_EQ(alias->usage().num_waiting, 1U);
}

TEST_F(RequestGateTest, AnAliasMayKnowMoreThanTheModelThatComesAnew) {
  const auto alias = make_gate();
  submit(*alias, 1);
  gate->set_limits(limits());
  gate->fail({ErrorCode::kUnavailable, "gone"});
  EXPECT_FALSE(alias->forward_to(gate));
  const auto anew = make_gate();
  EXPECT_TRUE(alias->forward_to(anew));
  EXPECT_EQ(anew->usage().num_waiting, 1U);
}

TEST_F(RequestGateTest, StaysOpenWhileAStreamIsAlive) {
  std::promise<void> go;
  const auto engine = open_held_until(go);
  submit(*gate, 1);
  submit(*gate, 2);
  EXPECT_EQ(gate->usage().num_alive, 2);
  EXPECT_FALSE(gate->close_if_idle());
  gate->cancel({1, 2});
  go.set_value();
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(sink->wait_done(2).num_ends, 1);
  EXPECT_TRUE(gate->close_if_idle());
}

TEST_F(RequestGateTest, ClosesOnlyWhereNobodyIsThere) {
  EXPECT_FALSE(gate->close_if_idle()) << "it is not open";
  submit(*gate, 1);
  EXPECT_FALSE(gate->close_if_deserted());
  gate->set_limits(limits());
  const auto engine = make_engine();
  gate->open(engine->instance());
  EXPECT_FALSE(gate->close_if_deserted()) << "it waits no longer";
  sink->wait_done(1);
  EXPECT_EQ(gate->usage().num_alive, 0) << "the end is counted before it is told";
  EXPECT_GE(num_unused, 1);
  EXPECT_TRUE(gate->close_if_idle());
  EXPECT_EQ(submit(*gate, 2).outcome, Outcome::kClosed);

  const auto empty = make_gate();
  EXPECT_TRUE(empty->close_if_deserted());
  EXPECT_EQ(submit(*empty, 3).outcome, Outcome::kClosed);
}

}  // namespace
}  // namespace lmtp::engine

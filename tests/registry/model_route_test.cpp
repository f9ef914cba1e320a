// Counting the streams of a model that is loaded.
#include "model_route.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fake_agent.h"
#include "lmtp/aici/instance.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"
#include "registry_actor.h"
#include "scripted_runtime.h"

namespace lmtp::registry {
namespace {

using testing::RecordingSink;

constexpr int kVocab = 1000;
constexpr std::size_t kMaxRequests = 4;

struct ModelRouteTest : ::testing::Test {
  // Its steps wait until go() is called.
  ModelRouteTest() {
    testing::FakeAgentOptions options;
    options.vocab_size = kVocab;
    options.before_step = [released = gate.get_future().share()](const auto&) -> Result<void> {
      released.wait();
      return {};
    };
    engine = std::make_unique<engine::Engine>(
        testing::make_fake_agent(options),
        engine::ModelLimits{.vocab_size = kVocab, .context_length = 64, .eos_ids = {}},
        engine::EngineOptions());
    route =
        std::make_shared<ModelRoute>(engine->instance(), kMaxRequests, make_route_owner(mailbox));
    std::vector<Request> none;
    EXPECT_TRUE(route->hand_over(none));
  }
  ~ModelRouteTest() override { go(); }
  void go() {
    if (!std::exchange(gone, true)) gate.set_value();
  }
  Request make(StreamId id, ConnectionId connection = 1, bool others_connected = false) {
    Request request;
    request.key = {connection, id};
    request.others_connected = others_connected;
    request.sink = sink;
    request.prompt = {1, 2};
    request.params.max_tokens = 3;
    return request;
  }
  Result<bool> submit(StreamId id, ConnectionId connection = 1, bool others_connected = false) {
    Request request = make(id, connection, others_connected);
    return route->submit(request);
  }

  std::promise<void> gate;
  bool gone = false;
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::unique_ptr<engine::Engine> engine;
  std::shared_ptr<ModelRoute> route;
};

TEST_F(ModelRouteTest, StaysOpenWhileAStreamIsAlive) {
  EXPECT_TRUE(*submit(1));
  EXPECT_TRUE(*submit(2));
  EXPECT_EQ(route->usage().num_streams, 2);
  EXPECT_FALSE(route->close_if_idle());
  route->cancel({1, 2});
  go();
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(sink->wait_done(2).error, "cancelled");
  EXPECT_EQ(route->usage().num_streams, 0) << "the end is counted before it is told";
  EXPECT_TRUE(route->close_if_idle());
  Request late = make(3);
  EXPECT_FALSE(*route->submit(late));
  EXPECT_EQ(late.prompt.size(), 2U) << "as it was";
  EXPECT_EQ(late.sink, sink);
}

TEST_F(ModelRouteTest, AmongOthersAConnectionHoldsThreeQuarters) {
  for (StreamId id = 1; id <= 3; ++id) EXPECT_TRUE(*submit(id, 1, true));
  const Result<bool> refused = submit(4, 1, true);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("three quarters of 4"), std::string::npos);
  EXPECT_TRUE(*submit(5, 2, true));
  go();
  for (const StreamId id : {1, 2, 3}) EXPECT_EQ(sink->wait_done(id).error, "");
  EXPECT_TRUE(*submit(9, 1, true)) << "they have ended";
  sink->wait_done(9);
}

TEST_F(ModelRouteTest, TellsWhenItIsIdleWhereThatIsWanted) {
  mailbox->wants_memory = true;
  EXPECT_TRUE(*submit(1));
  EXPECT_TRUE(mailbox->queue.empty());
  go();
  sink->wait_done(1);
  EXPECT_EQ(mailbox->queue.drain().size(), 1U);
  EXPECT_FALSE(mailbox->wants_memory) << "told once";
  EXPECT_TRUE(*submit(2));
  sink->wait_done(2);
  EXPECT_TRUE(mailbox->queue.empty());
}

TEST_F(ModelRouteTest, AnEngineThatHasStoppedLeavesTheRequestToOthers) {
  go();
  engine->stop(0);
  Request request = make(1);
  EXPECT_FALSE(*route->submit(request));
  EXPECT_EQ(request.sink, sink);
  EXPECT_EQ(route->usage().num_streams, 0);
}

TEST_F(ModelRouteTest, WhatIsHandedOverIsCountedAndMayComeBack) {
  std::vector<Request> waiting;
  waiting.push_back(make(1));
  waiting.push_back(make(2, 2));
  EXPECT_TRUE(route->hand_over(waiting));
  EXPECT_EQ(route->usage().num_streams, 2);
  go();
  for (const StreamId id : {1, 2}) EXPECT_EQ(sink->wait_done(id).tokens.size(), 3U);
  EXPECT_EQ(route->usage().num_streams, 0);
}

// The first delivery that tells of a fork cannot be made.
class FailingSink : public RecordingSink {
 public:
  void deliver(std::span<StreamEvent> events) override {
    if (num_forked(events) > 0 && !std::exchange(failed, true)) throw std::bad_alloc();
    RecordingSink::deliver(events);
  }
  bool failed = false;
};

TEST_F(ModelRouteTest, AForkThatIsToldAgainIsCountedOnce) {
  const auto runtime = std::make_shared<testing::ScriptedRuntime>(
      kVocab, [](const std::string& what) { ADD_FAILURE() << what; });
  runtime->instantiate({.request_id = "1",
                        .prompt = {1, 2},
                        .controller = "script",
                        .arg = R"([{"fork":[[{"any":true}],[{"any":true}]]}])"},
                       [](const auto& made) { EXPECT_TRUE(made.ok()); });
  const auto failing = std::make_shared<FailingSink>();
  sink = failing;
  Request request = make(1);
  request.controller = std::make_shared<aici::Instance>(runtime, "1");
  EXPECT_TRUE(*route->submit(request));
  go();
  engine->stop(60'000);
  EXPECT_TRUE(failing->failed);
  EXPECT_TRUE(sink->wait_fork_done(1, 1).done);
  EXPECT_EQ(route->usage().num_streams, 0);
}

TEST_F(ModelRouteTest, NobodyOvertakesThoseWhoWaited) {
  route = std::make_shared<ModelRoute>(engine->instance(), kMaxRequests, make_route_owner(mailbox));
  EXPECT_FALSE(*submit(1)) << "the actor takes it, behind them";
  std::vector<Request> waiting;
  waiting.push_back(make(2));
  EXPECT_TRUE(route->hand_over(waiting));
  EXPECT_TRUE(*submit(3));
  go();
  for (const StreamId id : {2, 3}) EXPECT_EQ(sink->wait_done(id).error, "");
}

TEST_F(ModelRouteTest, WhatAnEngineThatIsGoneWasToHaveIsAsItWas) {
  route = std::make_shared<ModelRoute>(engine->instance(), kMaxRequests, make_route_owner(mailbox));
  go();
  engine->stop(0);
  std::vector<Request> waiting;
  waiting.push_back(make(1));
  waiting.push_back(make(2, 2));
  EXPECT_FALSE(route->hand_over(waiting));
  ASSERT_EQ(waiting.size(), 2U);
  for (const Request& request : waiting) {
    EXPECT_EQ(request.prompt.size(), 2U);
    EXPECT_EQ(request.sink, sink);
  }
  EXPECT_EQ(route->usage().num_streams, 0);
}

TEST_F(ModelRouteTest, WhoWaitedHoldsItsShareWhenItRuns) {
  route = std::make_shared<ModelRoute>(engine->instance(), kMaxRequests, make_route_owner(mailbox));
  std::vector<Request> waiting;
  for (StreamId id = 1; id <= 2; ++id) waiting.push_back(make(id, 1, true));
  EXPECT_TRUE(route->hand_over(waiting));
  EXPECT_TRUE(*submit(3, 1, true));
  EXPECT_FALSE(submit(4, 1, true)) << "three quarters of 4, waiting and running together";
  go();
  for (const StreamId id : {1, 2, 3}) EXPECT_EQ(sink->wait_done(id).error, "");
}

}  // namespace
}  // namespace lmtp::registry

// What one connection can take from the others: from the outside, over real sockets and the null
// agent, whose steps begin when the test says.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "eventually.h"
#include "fake_model.h"
#include "lmtp/server/server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::eventually;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::StepGate;
using lmtp::testing::WsClient;

std::string ids(int first, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + std::to_string(first + i);
  return out;
}

std::string generate(StreamId id, int first, int num_prompt, int max_tokens) {
  return "GENERATE {\"stream_id\": " + std::to_string(id) + ", \"prompt\": [" +
         ids(first, num_prompt) + "], \"max_tokens\": " + std::to_string(max_tokens) + "}";
}

std::string score_message(StreamId id, int num_prompt, int first, int num_scored) {
  return "SCORE {\"stream_id\": " + std::to_string(id) + ", \"prompt\": [" + ids(0, num_prompt) +
         "], \"scored\": [" + ids(first, num_scored) + "]}";
}

// A connection that has so many SCOREs over one prompt in flight after each refill().
class ScoreFlood {
 public:
  ScoreFlood(std::uint16_t port, int num_in_flight, int num_prompt, int num_scored)
      : client_(port),
        num_in_flight_(num_in_flight),
        num_prompt_(num_prompt),
        num_scored_(num_scored) {
    client_.send(score_message(0, num_prompt, 0, num_scored));
    client_.collect(0);
  }

  // As many as have been answered.
  void refill() {
    for (std::size_t num_left = client_.settle(); num_left > 0; --num_left) {
      if (client_.next()->finish_reason != FinishReason::kNone) --num_now_;
    }
    for (; num_now_ < num_in_flight_; ++num_now_) {
      const int first = static_cast<int>(++last_id_ * 37 % 900);
      client_.send(score_message(last_id_, num_prompt_, first, num_scored_));
    }
  }

 private:
  WsClient client_;
  const int num_in_flight_;
  const int num_prompt_;
  const int num_scored_;
  int num_now_ = 0;
  StreamId last_id_ = 0;
};

class FairnessTest : public ::testing::Test {
 protected:
  void start(FakeModelOptions model, int max_concurrent_requests = 1024) {
    registry::OnlyModel only;
    only.name = "fake";
    only.max_waiting_requests = static_cast<std::size_t>(max_concurrent_requests);
    model.engine.max_concurrent_requests = max_concurrent_requests;
    model.engine.debug.check_invariants = true;
    only.found = lmtp::testing::make_fake_model("fake", std::move(model));
    models_ = std::make_unique<registry::Registry>(std::make_unique<lmtp::testing::FakeFactory>(),
                                                   std::move(only));
    ServerOptions options;
    options.port = 0;
    server_ = std::make_unique<Server>(options, *models_);
    ASSERT_TRUE(server_->start().ok());
    ASSERT_TRUE(
        eventually([&] { return (*models_->status(""))->state == registry::ModelState::kReady; }));
  }
  // One step at a time, with the flood as it was before each, until so many streams of the client
  // have ended. Fails where they have not after so many steps.
  static void step_until(int num_ends, int num_steps_max, WsClient& client, ScoreFlood& flood,
                         StepGate& gate) {
    int num_steps = 0;
    while (num_ends > 0 && num_steps < num_steps_max) {
      flood.refill();
      gate.let(1);
      ++num_steps;
      if (!gate.wait_until_inside()) break;
      for (std::size_t num_left = client.settle(); num_left > 0; --num_left) {
        const auto entry = client.next();
        EXPECT_EQ(entry->error, "");
        num_ends -= entry->finish_reason != FinishReason::kNone ? 1 : 0;
      }
    }
    EXPECT_EQ(num_ends, 0) << "have not ended after " << num_steps << " steps";
  }
  std::uint16_t port() const { return server_->port(); }
  engine::EngineStats stats() const { return (*models_->status(""))->stats; }

  // What agents look at until the models are gone.
  std::atomic<int> first_tokens_ = 0;
  std::atomic<int> most_tokens_ = 0;
  std::unique_ptr<registry::Registry> models_;
  std::unique_ptr<Server> server_;
};

TEST_F(FairnessTest, AConnectionDoesNotUseUpAllRequestsAlone) {
  const FakeModelOptions model;
  start(model, 16);
  WsClient greedy(port());
  WsClient other(port());
  other.send(generate(1, 0, 3, 1));
  EXPECT_EQ(other.collect(1).error, "") << "both are connected";
  StepGate gate(model.agent.steps);
  for (StreamId id = 1; id <= 16; ++id) greedy.send(generate(id, 10, 3, 400));
  for (StreamId id = 13; id <= 16; ++id) {
    const std::string error = greedy.collect(id).error;
    EXPECT_NE(error.find("three quarters of 16 (--max-concurrent-requests)"), std::string::npos)
        << error;
  }
  for (StreamId id = 2; id <= 5; ++id) other.send(generate(id, 20, 3, 2));
  gate.open();
  for (StreamId id = 2; id <= 5; ++id) EXPECT_EQ(other.collect(id).error, "");
}

TEST_F(FairnessTest, AConnectionAloneMayUseAllRequests) {
  const FakeModelOptions model;
  start(model, 16);
  StepGate gate(model.agent.steps);
  WsClient alone(port());
  WsClient(port()).drop();
  WsClient(port()).close();  // with a close frame, as libraries do
  for (StreamId id = 1; id <= 12; ++id) alone.send(generate(id, 10, 3, 2));
  // That the other one has gone is noticed soon. A refusal comes before what is answered next.
  EXPECT_TRUE(eventually([&] {
    alone.send(generate(13, 10, 3, 2));
    if (alone.settle() == 0) return true;
    alone.next();
    return false;
  }));
  for (StreamId id = 14; id <= 16; ++id) alone.send(generate(id, 10, 3, 2));
  gate.open();
  for (StreamId id = 1; id <= 16; ++id) EXPECT_EQ(alone.collect(id).error, "");
}

TEST_F(FairnessTest, AFloodOfCachedScoresStarvesNobody) {
  FakeModelOptions model;
  model.agent.num_blocks = 1000;
  start(model);
  ScoreFlood flood(port(), 256, 64, 16);
  StepGate gate(model.agent.steps);
  for (int i = 0; i < 2; ++i) flood.refill();  // the first is done when the second is
  WsClient other(port());
  other.send(generate(1, 450, 40, 4));
  other.settle();
  step_until(1, 400, other, flood, gate);  // it takes five alone
}

TEST_F(FairnessTest, APreemptedStreamIsNotOvertakenForEver) {
  FakeModelOptions model;
  model.agent.num_blocks = 35;  // a context, and two more
  start(model);
  ScoreFlood flood(port(), 256, 0, 17);
  StepGate gate(model.agent.steps);
  WsClient reader(port());
  for (StreamId id = 1; id <= 3; ++id) reader.send(generate(id, static_cast<int>(id), 3, 200));
  reader.settle();
  gate.let(3);
  ASSERT_TRUE(gate.wait_until_inside());
  EXPECT_EQ(stats().num_running, 3);
  step_until(3, 600, reader, flood, gate);  // two streams after one another
  EXPECT_GT(stats().num_preemptions, 0);
}

TEST_F(FairnessTest, AConnectionBeneathItsShareRunsBeforeOthersEnd) {
  FakeModelOptions model;
  model.agent.num_blocks = 1000;
  model.engine.batch.max_tokens = 8;
  start(model);
  StepGate gate(model.agent.steps);
  WsClient greedy(port());
  for (StreamId id = 1; id <= 8; ++id) greedy.send(generate(id, static_cast<int>(id), 3, 500));
  greedy.settle();
  gate.let(10);
  ASSERT_TRUE(gate.wait_until_inside());
  EXPECT_EQ(stats().num_running, 8);
  WsClient other(port());
  other.send(generate(1, 700, 3, 3));
  other.settle();
  // 64 steps are 512 tokens; the others' whole run is 4000.
  gate.let(250);
  ASSERT_TRUE(gate.wait_until_inside());
  ASSERT_EQ(other.settle(), 3U) << "tokens after 250 steps";
  EXPECT_EQ(other.collect(1).error, "");
}

TEST_F(FairnessTest, ALonePromptIsBoundedByItsTime) {
  FakeModelOptions model;
  model.agent.before_step = [this](const scheduler::StepPlan& plan) {
    if (first_tokens_ == 0) first_tokens_ = plan.num_tokens;
    most_tokens_ = std::max(most_tokens_.load(), plan.num_tokens);
    std::this_thread::sleep_for(std::chrono::microseconds(200 * plan.num_tokens));
    return Result<void>();
  };
  model.engine.debug.max_alone_ms = 30;
  start(model);
  WsClient client(port());
  client.send(generate(1, 0, 450, 1));
  EXPECT_EQ(client.collect(1).error, "");
  EXPECT_LE(first_tokens_, 64) << "it is not known yet how long tokens take";
  EXPECT_LE(most_tokens_, 150) << "of 0.2 ms each, at least";
}

// The step under way ends, and nothing of the prompt is computed behind it.
TEST_F(FairnessTest, ALonePromptIsGivenUpBetweenItsSteps) {
  constexpr int kNumPrompt = 450;
  for (const bool leaves : {false, true}) {
    const FakeModelOptions model;
    start(model);
    StepGate gate(model.agent.steps);
    WsClient client(port());
    client.send(generate(1, 0, kNumPrompt, 1));
    ASSERT_TRUE(gate.wait_until_inside());
    if (leaves) {
      client.half_close();
      EXPECT_FALSE(client.read().has_value()) << "the engine has been told before";
      gate.open();
    } else {
      client.send(R"(CANCEL {"stream_id": 1})");
      client.settle();
      gate.open();
      EXPECT_EQ(client.collect(1).error, "cancelled");
    }
    ASSERT_TRUE(eventually([&] { return stats().num_running + stats().num_waiting == 0; }));
    WsClient asking(port());
    asking.send(R"(MODEL_INFO {"stream_id": 9})");
    const std::string answer = asking.read().value_or("");
    const std::string name = R"("num_tokens_computed": )";
    const std::size_t at = answer.find(name);
    ASSERT_NE(at, std::string::npos) << answer;
    const int num_computed = std::stoi(answer.substr(at + name.size()));
    EXPECT_GT(num_computed, 0);
    EXPECT_LT(num_computed, kNumPrompt / 2) << (leaves ? "it left" : "it was cancelled");
    server_.reset();
    models_.reset();
  }
}

}  // namespace
}  // namespace lmtp::server

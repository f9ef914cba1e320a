// What one connection can take from the others: from the outside, over real sockets and the null
// agent, whose steps take as long as the test says.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fake_model.h"
#include "lmtp/server/server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::FakeModelOptions;
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

// A connection that keeps so many SCOREs over one prompt in flight until it is destroyed.
class ScoreFlood {
 public:
  ScoreFlood(std::uint16_t port, int num_in_flight, int num_prompt, int num_scored)
      : client_(port), num_prompt_(num_prompt), num_scored_(num_scored) {
    client_.send(score_message(0, num_prompt, 0, num_scored));
    client_.collect(0);
    for (int i = 0; i < num_in_flight; ++i) send_next();
    thread_ = std::thread([this] { run(); });
  }
  ~ScoreFlood() {
    stop_ = true;
    thread_.join();
  }
  ScoreFlood(const ScoreFlood&) = delete;
  ScoreFlood& operator=(const ScoreFlood&) = delete;

 private:
  void send_next() {
    const int first = static_cast<int>(++last_id_ * 37 % 900);
    client_.send(score_message(last_id_, num_prompt_, first, num_scored_));
  }
  void run() {
    while (!stop_) {
      const auto entry = client_.next();
      if (!entry) return;
      if (entry->finish_reason != FinishReason::kNone) send_next();
    }
  }

  WsClient client_;
  const int num_prompt_;
  const int num_scored_;
  StreamId last_id_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
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
    while ((*models_->status(""))->state != registry::ModelState::kReady) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::uint16_t port() const { return server_->port(); }
  engine::EngineStats stats() const { return (*models_->status(""))->stats; }

  // What agents look at until the models are gone.
  std::atomic<bool> held_ = false;
  std::atomic<int> first_tokens_ = 0;
  std::atomic<int> most_tokens_ = 0;
  std::unique_ptr<registry::Registry> models_;
  std::unique_ptr<Server> server_;
};

TEST_F(FairnessTest, AConnectionDoesNotUseUpAllRequestsAlone) {
  std::promise<void> go;
  FakeModelOptions model;
  model.agent.before_step = [this, released = go.get_future().share()](const auto&) {
    if (held_) released.wait();
    return Result<void>();
  };
  start(model, 16);
  WsClient greedy(port());
  WsClient other(port());
  other.send(generate(1, 0, 3, 1));
  EXPECT_EQ(other.collect(1).error, "") << "both are connected";
  held_ = true;
  for (StreamId id = 1; id <= 16; ++id) greedy.send(generate(id, 10, 3, 400));
  for (StreamId id = 13; id <= 16; ++id) {
    const std::string error = greedy.collect(id).error;
    EXPECT_NE(error.find("three quarters of 16 (--max-concurrent-requests)"), std::string::npos)
        << error;
  }
  for (StreamId id = 2; id <= 5; ++id) other.send(generate(id, 20, 3, 2));
  go.set_value();
  for (StreamId id = 2; id <= 5; ++id) EXPECT_EQ(other.collect(id).error, "");
}

TEST_F(FairnessTest, AConnectionAloneMayUseAllRequests) {
  std::promise<void> go;
  FakeModelOptions model;
  model.agent.before_step = [released = go.get_future().share()](const auto&) {
    released.wait();
    return Result<void>();
  };
  start(model, 16);
  WsClient alone(port());
  WsClient(port()).drop();
  WsClient(port()).close();  // with a close frame, as libraries do
  for (StreamId id = 1; id <= 12; ++id) alone.send(generate(id, 10, 3, 2));
  // That the other one has gone is noticed soon. A refusal comes before what is answered next.
  for (bool refused = true; refused;) {
    alone.send(generate(13, 10, 3, 2));
    alone.send(R"(MODEL_INFO {"stream_id": 99})");
    refused = !alone.next()->is_msg;
    if (refused) alone.next();
  }
  for (StreamId id = 14; id <= 16; ++id) alone.send(generate(id, 10, 3, 2));
  go.set_value();
  for (StreamId id = 1; id <= 16; ++id) EXPECT_EQ(alone.collect(id).error, "");
}

TEST_F(FairnessTest, AFloodOfCachedScoresStarvesNobody) {
  FakeModelOptions model;
  model.agent.num_blocks = 1000;
  model.agent.step_time = std::chrono::milliseconds(10);  // so that the flood is always there
  start(model);
  const ScoreFlood flood(port(), 256, 64, 16);
  WsClient other(port());
  const auto before = stats().num_steps;
  other.send(generate(1, 450, 40, 4));
  EXPECT_EQ(other.collect(1).error, "");
  EXPECT_LE(stats().num_steps - before, 400) << "it takes five, and what the sockets take";
}

TEST_F(FairnessTest, APreemptedStreamIsNotOvertakenForEver) {
  FakeModelOptions model;
  model.agent.num_blocks = 35;  // a context, and two more
  model.agent.step_time = std::chrono::milliseconds(4);
  start(model);
  WsClient reader(port());
  for (StreamId id = 1; id <= 3; ++id) reader.send(generate(id, static_cast<int>(id), 3, 200));
  while (stats().num_running < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const ScoreFlood flood(port(), 256, 0, 17);
  for (int num_ended = 0; num_ended < 3;) {
    const auto entry = reader.next();
    ASSERT_TRUE(entry.has_value());
    ASSERT_EQ(entry->error, "");
    num_ended += entry->finish_reason != FinishReason::kNone ? 1 : 0;
  }
  EXPECT_GT(stats().num_preemptions, 0);
  EXPECT_LE(stats().num_steps, 600) << "two streams after one another, and what the sockets take";
}

TEST_F(FairnessTest, AConnectionBeneathItsShareRunsBeforeOthersEnd) {
  FakeModelOptions model;
  model.agent.num_blocks = 1000;
  model.agent.step_time = std::chrono::milliseconds(5);
  model.engine.batch.max_tokens = 8;
  start(model);
  WsClient greedy(port());
  for (StreamId id = 1; id <= 8; ++id) greedy.send(generate(id, static_cast<int>(id), 3, 500));
  while (stats().num_running < 8) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto before = stats().num_generated_tokens;
  WsClient other(port());
  other.send(generate(1, 700, 3, 3));
  EXPECT_EQ(other.collect(1).error, "");
  // 64 steps are 512 tokens; the others' whole run is 4000.
  EXPECT_LT(stats().num_generated_tokens - before, 2000);
}

TEST_F(FairnessTest, ALonePromptIsBoundedByItsTime) {
  FakeModelOptions model;
  model.agent.before_step = [this](const scheduler::StepPlan& plan) {
    if (first_tokens_ == 0) first_tokens_ = plan.num_tokens;
    most_tokens_ = std::max(most_tokens_.load(), plan.num_tokens);
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * plan.num_tokens));
    return Result<void>();
  };
  start(model);
  WsClient client(port());
  client.send(generate(1, 0, 450, 1));
  EXPECT_EQ(client.collect(1).error, "");
  EXPECT_LE(first_tokens_, 64) << "it is not known yet how long tokens take";
  EXPECT_LE(most_tokens_, 150) << "of 2 ms each";
}

// The step under way ends, and nothing of the prompt is computed behind it.
TEST_F(FairnessTest, ALonePromptIsGivenUpBetweenItsSteps) {
  constexpr int kNumPrompt = 450;
  for (const bool leaves : {false, true}) {
    std::atomic<bool> begun = false;
    held_ = true;
    FakeModelOptions model;
    model.agent.before_step = [&](const scheduler::StepPlan&) {
      begun = true;
      while (held_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return Result<void>();
    };
    start(model);
    WsClient client(port());
    client.send(generate(1, 0, kNumPrompt, 1));
    while (!begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // What is answered last is answered when the engine has been told.
    if (leaves) {
      client.half_close();
      EXPECT_FALSE(client.read().has_value());
      held_ = false;
    } else {
      client.send(R"(CANCEL {"stream_id": 1})");
      client.send("END");
      EXPECT_FALSE(client.next()->stream_id.has_value());
      held_ = false;
      EXPECT_EQ(client.collect(1).error, "cancelled");
    }
    while (stats().num_running + stats().num_waiting > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
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

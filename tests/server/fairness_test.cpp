// What one connection can take from the others: from the outside, over real sockets and the null
// agent, whose steps take as long as the test says.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
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

class FairnessTest : public ::testing::Test {
 protected:
  void start(FakeModelOptions model, int max_concurrent_requests = 1024) {
    engine::OnlyModel only;
    only.name = "fake";
    only.max_waiting_requests = static_cast<std::size_t>(max_concurrent_requests);
    model.engine.max_concurrent_requests = max_concurrent_requests;
    model.engine.check_invariants = true;
    only.found = lmtp::testing::make_fake_model("fake", std::move(model));
    models_ = std::make_unique<engine::ModelManager>(std::make_unique<lmtp::testing::FakeFactory>(),
                                                     std::move(only));
    ServerOptions options;
    options.port = 0;
    server_ = std::make_unique<Server>(options, *models_);
    ASSERT_TRUE(server_->start().ok());
  }
  std::uint16_t port() const { return server_->port(); }

  std::unique_ptr<engine::ModelManager> models_;
  std::unique_ptr<Server> server_;
};

TEST_F(FairnessTest, AConnectionDoesNotUseUpAllRequestsAlone) {
  std::atomic<bool> held = false;
  std::promise<void> go;
  FakeModelOptions model;
  model.agent.before_step = [&held, released = go.get_future().share()](const auto&) {
    if (held) released.wait();
    return Result<void>();
  };
  start(model, 16);
  WsClient greedy(port());
  WsClient other(port());
  other.send(generate(1, 0, 3, 1));
  EXPECT_EQ(other.collect(1).error, "") << "both are connected";
  held = true;
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

}  // namespace
}  // namespace lmtp::server

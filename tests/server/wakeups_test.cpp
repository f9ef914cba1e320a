// An engine's thread wakes the connections' threads once a step, however many connections have
// streams, and whether these are WebSockets or HTTP requests.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "eventually.h"
#include "http_client.h"
#include "running_server.h"
#include "ws_client.h"

namespace lmtp::server {
namespace {

using lmtp::testing::eventually;
using lmtp::testing::FakeAgent;
using lmtp::testing::FakeModelOptions;
using lmtp::testing::HttpClient;
using lmtp::testing::Running;
using lmtp::testing::StepGate;
using lmtp::testing::WsClient;

constexpr int kNumWebSockets = 24;
constexpr int kNumHttp = 8;
constexpr int kNumTokens = 300;

// The value of a metric without labels, or of the one model's.
double metric(std::uint16_t port, const std::string& name) {
  const std::string text = lmtp::testing::http_exchange(
      port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::size_t line = text.find("\n" + name);
  if (line == std::string::npos) return -1.0;
  return std::stod(text.substr(text.find(' ', line + 1)));
}

TEST(WakeUps, AStepIsOneWhateverTheNumberOfConnections) {
  FakeModelOptions model;
  model.agent.num_blocks = 4096;
  Running running(model);
  StepGate gate(model.agent.steps);
  const std::uint16_t port = running.server.port();
  std::vector<std::unique_ptr<HttpClient>> requests;
  for (int i = 0; i < kNumHttp; ++i) {
    const std::string body = R"({"model": "fake", "prompt": [1, 2, 3], "stream": true, )"
                             R"("ignore_eos": true, "max_tokens": )" +
                             std::to_string(kNumTokens) + "}";
    requests.push_back(std::make_unique<HttpClient>(port));
    requests.back()->send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  std::vector<std::unique_ptr<WsClient>> clients;
  for (int i = 0; i < kNumWebSockets; ++i) {
    clients.push_back(std::make_unique<WsClient>(port));
    clients.back()->send(lmtp::testing::generate(7, kNumTokens));
    clients.back()->settle();
  }
  ASSERT_TRUE(eventually([&] {  // the HTTP requests are read meanwhile
    gate.let(1);
    return gate.wait_until_inside() && running.stats().num_running == kNumWebSockets + kNumHttp;
  }));
  const double wakeups_before = metric(port, "lmtp_wakeups_total");
  const double steps_before = metric(port, "lmtp_steps_total");
  gate.open();
  for (const auto& client : clients) {
    EXPECT_EQ(client->collect(7).tokens,
              FakeAgent::expected_tokens({1, 2, 3}, kNumTokens, lmtp::testing::kFakeVocabSize));
  }
  for (const auto& request : requests) {
    EXPECT_NE(request->read_until("data: [DONE]").find("data: [DONE]"), std::string::npos);
  }
  const double num_steps = metric(port, "lmtp_steps_total") - steps_before;
  const double num_wakeups = metric(port, "lmtp_wakeups_total") - wakeups_before;
  EXPECT_GT(num_steps, kNumTokens / 2);
  EXPECT_GT(num_wakeups, 0);
  EXPECT_LE(num_wakeups, num_steps);
}

}  // namespace
}  // namespace lmtp::server

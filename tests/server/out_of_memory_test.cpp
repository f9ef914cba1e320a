// A handler that throws costs its own connection; what is answered is freed. What throws and counts
// is this program's operator new.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "http_client.h"
#include "running_server.h"
#include "ws_client.h"

namespace {

constexpr std::size_t kScarceBytes = std::size_t{16} << 10;
constexpr std::size_t kLargeBytes = std::size_t{48} << 10;
std::atomic<int> g_num_large = 0;  // blocks that are not freed
std::atomic<bool> g_is_scarce = false;
thread_local bool g_is_exempt = false;

bool is_large(void* memory) { return ::malloc_usable_size(memory) >= kLargeBytes; }

void release(void* memory) noexcept {
  if (is_large(memory)) --g_num_large;
  std::free(memory);
}

}  // namespace

// Not inlined: gcc would take free() for the wrong way to give back what new gave.
[[gnu::noinline]] void* operator new(std::size_t num_bytes) {
  if (num_bytes > kScarceBytes && g_is_scarce && !g_is_exempt) throw std::bad_alloc();
  void* const memory = std::malloc(num_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  if (is_large(memory)) ++g_num_large;
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { release(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*num_bytes*/) noexcept {
  release(memory);
}

namespace lmtp::server {
namespace {

using lmtp::testing::FakeModelOptions;
using lmtp::testing::generate;
using lmtp::testing::http_request;
using lmtp::testing::HttpClient;
using lmtp::testing::Running;
using lmtp::testing::WsClient;

TEST(OutOfMemory, InAnAnswerItCostsThatConnection) {
  g_is_exempt = true;
  FakeModelOptions model;
  // Memory becomes scarce with the first step, on all threads but the engine's and this one.
  model.agent.before_step = [](const auto&) -> Result<void> {
    g_is_exempt = g_is_scarce = true;
    return {};
  };
  Running running(model);
  WsClient victim(running.server.port());
  std::string many = "1";
  for (int i = 0; i < 400; ++i) many += ", 2";
  victim.send(R"(SCORE {"stream_id": 1, "prompt": [1], "scored": [)" + many + "]}");
  const WsClient::Outcome outcome = victim.collect(1);
  EXPECT_EQ(outcome.error.rfind("closed", 0), 0U) << outcome.error;
  g_is_scarce = false;
  WsClient other(running.server.port());
  other.send(generate(1, 2));
  EXPECT_EQ(other.collect(1).tokens.size(), 2U);
}

TEST(OutOfMemory, InAQuestionItCostsThatConnection) {
  g_is_exempt = true;
  g_is_scarce = false;  // the last step of the test before has set it
  Running running;
  WsClient victim(running.server.port());
  WsClient other(running.server.port());
  g_is_scarce = true;
  victim.send(std::string(std::size_t{1} << 20, ' '));
  EXPECT_FALSE(victim.read().has_value());
  g_is_scarce = false;
  other.send(generate(1, 2));
  EXPECT_EQ(other.collect(1).tokens.size(), 2U);
}

// A connection that is kept holds nothing of the bodies that were sent on it.
TEST(OutOfMemory, ABodyIsFreedWithItsAnswer) {
  g_is_exempt = true;
  g_is_scarce = false;
  Running running({}, {}, [](HttpRoutes& routes, registry::Registry&) {
    routes.add({"POST", "/size", 200'000, [](const HttpRequest& request, const auto& responder) {
                  responder->send({200, "text/plain", std::to_string(request.body.size())});
                }});
  });
  std::vector<std::unique_ptr<HttpClient>> clients;
  const auto ask_all = [&](const std::string& body) {
    for (const auto& client : clients) {
      client->send(http_request("POST /size", body));
      EXPECT_EQ(client->read_answer().body, std::to_string(body.size()));
    }
  };
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<HttpClient>(running.server.port()));
  }
  ask_all("");
  const int before = g_num_large;
  ask_all("body");
  ask_all(std::string(100'000, 'x'));
  EXPECT_TRUE(lmtp::testing::eventually([&] { return g_num_large <= before; }));
  ask_all("");  // they were kept all the while
}

}  // namespace
}  // namespace lmtp::server

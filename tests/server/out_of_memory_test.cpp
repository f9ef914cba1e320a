// A handler that throws costs its own connection. What throws is this program's operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "running_server.h"
#include "ws_client.h"

namespace {

constexpr std::size_t kScarceBytes = std::size_t{16} << 10;
std::atomic<bool> g_is_scarce = false;
thread_local bool g_is_exempt = false;

}  // namespace

// Not inlined: gcc would take free() for the wrong way to give back what new gave.
[[gnu::noinline]] void* operator new(std::size_t num_bytes) {
  if (num_bytes > kScarceBytes && g_is_scarce && !g_is_exempt) throw std::bad_alloc();
  if (void* const memory = std::malloc(num_bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*num_bytes*/) noexcept {
  std::free(memory);
}

namespace lmtp::server {
namespace {

using lmtp::testing::FakeModelOptions;
using lmtp::testing::generate;
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

}  // namespace
}  // namespace lmtp::server

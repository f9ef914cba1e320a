// Waiting in a test for what another thread does.
#pragma once

#include <chrono>
#include <thread>

namespace lmtp::testing {

// Whether the condition comes true, asked each millisecond: EXPECT_TRUE(eventually([&] { ... })).
// The limit only ends a test that hangs; nothing may depend on how long it is.
template <typename Condition>
[[nodiscard]] bool eventually(Condition condition,
                              std::chrono::seconds limit = std::chrono::seconds(120)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace lmtp::testing

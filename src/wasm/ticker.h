// Counts time for wasmtime, while calls run.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lmtp::wasm {

// Owner: an Engine. Any thread.
class Ticker {
 public:
  // Calls `tick` on a thread of its own.
  Ticker(std::chrono::milliseconds period, std::function<void()> tick);
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  // Around a call that needs ticks.
  void begin();
  void end() { num_running_.fetch_sub(1); }

 private:
  void run();

  const std::chrono::milliseconds period_;
  const std::function<void()> tick_;
  std::atomic<int> num_running_ = 0;
  std::atomic<bool> is_asleep_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace lmtp::wasm

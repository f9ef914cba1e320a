// Encoder: the thread that reads long texts, which would hold up the other connections of an io
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <utility>

#include "lmtp/base/bounded_queue.h"

namespace lmtp::server {

// A text of so many bytes takes up to 40 ms where it is one word, a few as a rule.
inline constexpr std::size_t kEncodedAtOnceMax = std::size_t{64} << 10;
// Longer ones that wait for their turn.
inline constexpr std::size_t kEncodesMax = 64;

// Owner: the server's context. start() and stop() from one thread, once; submit() from any.
class Encoder {
 public:
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  ~Encoder() { stop(); }

  void start();
  // What is queued is dropped.
  void stop();

  // False where too much waits, or it does not run. `job` must not throw.
  bool submit(std::function<void()> job) {
    return thread_.joinable() && jobs_.try_push(std::move(job));
  }

 private:
  BoundedQueue<std::function<void()>> jobs_{kEncodesMax};
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace lmtp::server

// Encoder: the thread that encodes long texts, and decodes long lists of ids, which would hold up
// the other connections of an io thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"

namespace lmtp::server {

// A text of so many bytes takes up to 40 ms where it is one word, a few as a rule; ids of so many
// bytes take less.
inline constexpr std::size_t kEncodedAtOnceMax = std::size_t{64} << 10;
// Longer ones, and chats, that wait for their turn, in all and of one connection.
inline constexpr std::size_t kEncodesMax = 1024;
inline constexpr std::size_t kEncodesOfOneMax = 768;

// Connections take turns: one that sends many long texts holds up another's by one of them.
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

  // False where too much waits, or it does not run. `run` must not throw.
  bool submit(ConnectionId connection, std::function<void()> run);

 private:
  struct Job {
    ConnectionId connection = 0;
    std::int64_t round = 0;  // of the turns that connections take
    std::function<void()> run;
  };

  std::mutex mutex_;
  runtime::Condition changed_;
  std::deque<Job> jobs_;    // in the order of their rounds
  std::int64_t round_ = 0;  // of the job that was taken last
  bool running_ = false;
  runtime::Thread thread_;
};

}  // namespace lmtp::server

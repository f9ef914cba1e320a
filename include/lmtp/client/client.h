// A small LMTP client: one connection, any number of streams. Speaks to lmtp-serve and to LMQL's
// own server alike.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"

namespace lmtp::client {

inline constexpr int kConnectTimeoutMs = 10'000;
inline constexpr int kSendTimeoutMs = 60'000;  // for a server that has stopped reading
inline constexpr int kCloseTimeoutMs = 500;
inline constexpr std::size_t kMessageBytesMax = std::size_t{256} << 20;  // of one received message
inline constexpr std::size_t kHeldBytesMax = std::size_t{64} << 20;      // read ahead while sending

// A message as it stands.
struct ReceivedMessage {
  std::string text;
  std::chrono::steady_clock::time_point arrived;  // when all of it had been read from the socket
};

// Owner: the caller. All calls from one thread at a time, but for interrupt(); nothing runs between
// calls, so that a REPL, a test or a load generator decides what waits for what. A server's pings
// are thus answered only inside send() and receive().
class Client {
 public:
  Client();
  ~Client();  // closes
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // Connects and upgrades to WebSocket; a connection that was open is closed first. The error names
  // host, port and what would help. REQUIRES: timeout_ms >= 0.
  Result<void> connect(const std::string& host, std::uint16_t port,
                       int timeout_ms = kConnectTimeoutMs);
  // False from the first call on that met the connection's end.
  bool connected() const;

  // Queues nothing: the message is with the operating system when this returns. An error means that
  // the connection is gone.
  Result<void> send(const protocol::ClientMessage& message);
  // As it stands; for tests and for verbs of the future. REQUIRES: valid UTF-8.
  Result<void> send_text(const std::string& text);

  // The next entry of any stream; false within `timeout_ms` (< 0: wait for ever) none came, or
  // interrupt() was called since the last receive(). An error means that the connection is gone:
  // entries that came before are given out first.
  Result<bool> receive(protocol::ServerEntry& entry, int timeout_ms = -1);
  // The next message, in the same way: for who measures when each one came. One that comes during
  // a send() is read, and has its time, then.
  // REQUIRES: receive() has given out the last entry of the message that it is at.
  Result<bool> receive_message(ReceivedMessage& message, int timeout_ms = -1);

  // Wakes a receive() or a connect() that waits in another thread or below a signal handler.
  // Async-signal-safe. REQUIRES: the client lives and is not being moved.
  void interrupt();

  // Says goodbye and closes; waits for the server's answer for kCloseTimeoutMs at most.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::client

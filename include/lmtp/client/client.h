// A small LMTP client: one connection, any number of streams.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"

namespace lmtp::client {

// Owner: the caller. All calls from one thread at a time; nothing runs between calls except in
// receive(), so that a REPL, a test or a load generator decides what waits for what.
class Client {
 public:
  Client();
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // Connects and upgrades to WebSocket. The error names host, port and what would help.
  Result<void> connect(const std::string& host, std::uint16_t port, int timeout_ms = 10'000);
  bool connected() const;

  // Queues nothing: the message is on its way when this returns.
  Result<void> send(const protocol::ClientMessage& message);
  // As it stands; for tests and for verbs of the future.
  Result<void> send_text(const std::string& text);

  // The next entry of any stream; false within `timeout_ms` (< 0: wait for ever) none came.
  // An error means that the connection is gone.
  Result<bool> receive(protocol::ServerEntry& entry, int timeout_ms = -1);

  // Wakes a receive() that waits in another thread or below a signal handler; it returns false.
  // Async-signal-safe.
  void interrupt();

  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::client

// An LMTP client: one connection, any number of streams. Works with lmtp-serve and with LMQL's own
// server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"

namespace boost::asio::ssl {
class context;  // NOLINT(readability-identifier-naming)
}

namespace lmtp::client {

inline constexpr int kConnectTimeoutMs = 10'000;
inline constexpr int kSendTimeoutMs = 60'000;  // if the server does not read
inline constexpr int kCloseTimeoutMs = 500;
inline constexpr std::size_t kMessageBytesMax = std::size_t{256} << 20;  // of one received message
inline constexpr std::size_t kHeldBytesMax = std::size_t{64} << 20;      // received while sending

// A message as received.
struct ReceivedMessage {
  std::string text;
  std::chrono::steady_clock::time_point arrived;  // when all of it had been read from the socket
};

// What connecting takes besides an address. Copies share what was read from files.
struct Security {
  std::shared_ptr<boost::asio::ssl::context> tls;    // null: plain
  std::string api_key;                               // sent as `Authorization: Bearer`; empty: none
  std::size_t message_bytes_max = kMessageBytesMax;  // a longer one ends the connection
};

// As programs are asked for it.
struct SecurityOptions {
  bool tls = false;
  std::string ca_file;  // PEM: who signs the server's certificate; empty: the system's, or those of
                        // SSL_CERT_FILE
  bool insecure = false;  // any certificate is taken
  std::string api_key;
};

// The error names the option or file, and the remedy. Blocks on the disk.
Result<Security> make_security(const SecurityOptions& options);

// Owner: the caller. All calls from one thread at a time, except interrupt(). No background thread:
// the caller decides what waits for what, and a server's pings are answered only inside send() and
// receive().
class Client {
 public:
  Client();
  ~Client();  // closes
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  // Connects and upgrades to WebSocket; an open connection is closed first. `host`: a name, an
  // address, or unix:PATH, where `port` is not used. The error names host, port and the remedy; its
  // code is kCancelled after interrupt().
  // REQUIRES: timeout_ms >= 0.
  Result<void> connect(const std::string& host, std::uint16_t port,
                       int timeout_ms = kConnectTimeoutMs, const Security& security = {});
  // False once a call has found the connection closed.
  bool connected() const;

  // Queues nothing: the operating system has the message when this returns. After an error the
  // connection is closed.
  Result<void> send(const protocol::ClientMessage& message);
  // Sends `text` unchanged; for tests and for later verbs. REQUIRES: valid UTF-8.
  Result<void> send_text(const std::string& text);

  // The next entry of any stream. False if none came within `timeout_ms` (< 0: no timeout), or
  // interrupt() was called since the last receive(). An error means that the connection is closed;
  // entries received before that are returned first.
  Result<bool> receive(protocol::ServerEntry& entry, int timeout_ms = -1);
  // The same for whole messages with their arrival times. A message that arrives during a send() is
  // read, and timed, then. REQUIRES: receive() has returned all entries of its current message.
  Result<bool> receive_message(ReceivedMessage& message, int timeout_ms = -1);

  // Waits for so long, connected or not; false where interrupt() was called. REQUIRES: >= 0.
  bool pause(int duration_ms);

  // Wakes a receive(), pause() or connect() that waits in another thread, or that a signal
  // interrupted.
  // Async-signal-safe. REQUIRES: the client lives and is not being moved.
  void interrupt();

  // Sends a close frame and closes; waits at most kCloseTimeoutMs for the server's.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::client

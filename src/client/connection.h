// Connection: Client's socket and the io_context that runs it while a call waits.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/client/client.h"
#include "lmtp/tls/stream.h"

namespace lmtp::client {

// Owner: one Client; one thread at a time. Handlers run only inside run_until.
class Connection {
 public:
  Connection();
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Result<void> connect(const std::string& host, std::uint16_t port, int timeout_ms,
                       const Security& security);
  Result<void> send(const std::string& text);
  // The next message; false as in Client::receive.
  Result<bool> receive(ReceivedMessage& message, int timeout_ms);
  // As Client::pause.
  bool pause(int duration_ms);
  void close();
  // After a message that is not LMTP: nothing more is received or sent, for this reason.
  void fail(std::string reason);
  bool open() const { return socket_.has_value() && end_reason_.empty(); }

  // Readable descriptor to wake the loop by; any thread, signal handlers too.
  int wake_fd() const { return wake_fd_; }

 private:
  using Clock = std::chrono::steady_clock;
  using ErrorCode = boost::system::error_code;
  using Protocol = boost::asio::generic::stream_protocol;
  using WebSocket = boost::beast::websocket::stream<tls::Stream<Protocol::socket>>;
  enum class Wait { kDone, kTimedOut, kInterrupted };

  // Runs handlers until `done()`; timeout_ms < 0: no timeout. A wake ends only an `interruptible`
  // wait, which consumes it; otherwise it stays for the next such wait.
  Wait run_until(const std::function<bool()>& done, int timeout_ms, bool interruptible);

  // Each waits for one step of connecting; an empty text is success.
  std::string resolve_and_connect(const std::string& host, std::uint16_t port, int timeout_ms);
  std::string connect_to_unix(const std::string& path, int timeout_ms);
  std::string start_tls(const std::string& host, tls::Context& context, int timeout_ms);
  std::string upgrade(const std::string& authority, const Security& security, int timeout_ms);
  // Waits until a handler has set `result`; returns the error's text, empty for success.
  std::string wait_for(std::optional<ErrorCode>& result, int timeout_ms);

  void watch_wake_fd();
  void start_read();
  void take_message();
  void end(std::string reason);
  std::string describe(ErrorCode error) const;
  void drop_socket();
  Protocol::socket& tcp() { return socket_->next_layer().next_layer(); }

  boost::asio::io_context io_{1};
  int wake_fd_ = -1;
  boost::asio::posix::stream_descriptor wake_;
  std::uint64_t wake_value_ = 0;
  bool interrupted_ = false;

  std::optional<WebSocket> socket_;
  boost::beast::flat_buffer read_buffer_;
  bool reading_ = false;
  bool sending_ = false;
  std::deque<ReceivedMessage> messages_;
  std::size_t held_bytes_ = 0;  // of messages_
  std::string end_reason_;      // why the connection has ended; empty: it has not
};

}  // namespace lmtp::client

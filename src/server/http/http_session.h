// An accepted socket before (or without) its upgrade to a WebSocket.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "context.h"
#include "lmtp/base/log.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/server/http.h"
#include "message.h"
#include "net/connection.h"
#include "net/socket.h"
#include "net/write_queue.h"

namespace lmtp::server {

// Reads requests one after the other, each within limits of size and time, and hands them to their
// routes. While a handler has not answered, the socket is still read, so that a client that closes
// is noticed. Everything but what Connection declares runs on the socket's strand;
// pending operations keep the object alive.
class HttpSession : public Connection, public std::enable_shared_from_this<HttpSession> {
 public:
  // `tls`: what it speaks TLS with; null: it does not. `refusal`: whatever is asked is answered
  // with that, as there are too many connections.
  HttpSession(std::shared_ptr<ServerContext> context, Socket socket,
              std::shared_ptr<tls::Context> tls, AddressLimits::Seat seat,
              std::optional<HttpResponse> refusal);
  ~HttpSession() override;

  // Call once, from any thread. No effect while the server is stopping.
  void start();

  void shut_down() override;
  void drop() override;
  Holding holding(Held what) const override;
  void give_up(Held what) override;

 private:
  class Responder;
  using Clock = std::chrono::steady_clock;
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;

  // kHeader (the handshake of TLS included), kBody -> kAnswering (a handler has the request) ->
  // kFinishing (the whole answer is in the queue) -> kHeader, or kDraining where the connection is
  // not kept.
  enum class State { kHeader, kBody, kAnswering, kFinishing, kDraining, kClosed };
  // Responders hold weak references to this and to the session: the strand, and what it needs.
  struct Strand {
    std::shared_ptr<ServerContext> context;
    boost::asio::any_io_executor executor;
  };

  // Runs a handler's work; an exception costs this connection.
  template <typename Work>
  void guard(Work work) {
    try {
      work();
    } catch (const std::exception& e) {
      log::error("connection " + std::to_string(place_.id()) + " failed: " + e.what());
      finish();
    }
  }
  TcpStream& tcp() { return stream_.next_layer(); }
  const TcpStream& tcp() const { return stream_.next_layer(); }
  void shake_hands();
  void read_header();
  void on_header(boost::beast::error_code error);
  bool reads_body() const { return route_ != nullptr && route_->max_body_bytes > 0; }
  bool is_local() const;
  std::optional<HttpResponse> refuse_header() const;
  std::optional<HttpResponse> refuse_address();
  void begin_caller();
  void begin_id(const std::string& id);
  std::optional<HttpResponse> identify(bool begins_websocket);
  const UpgradeHandler* find_websocket() const;
  void log_refused(const HttpResponse& refusal, bool was_handled);
  void upgrade(const UpgradeHandler& handler);
  void begin_body();
  void count_body();
  void watch_body();
  void read_body();
  void on_body(boost::beast::error_code error, std::size_t num_raw);
  void stop_body(HttpResponse refusal);
  void handle();

  bool is_answering(std::uint64_t number) const {
    return state_ == State::kAnswering && number == request_number_;
  }
  void send(const HttpResponse& response);
  void begin(const HttpResponse& head);
  void write(std::string_view piece);
  void end();
  void on_silence(std::chrono::milliseconds interval, std::function<void()> callback);
  void await_silence(std::chrono::milliseconds interval);
  void cut(const char* mistake);
  void on_unanswered();
  bool others_connected();
  void uncount();
  void refuse(const HttpResponse& response);
  void watch();
  void on_watched(boost::beast::error_code error, std::size_t num_bytes);

  void enqueue(std::string text);
  void write_next();
  void on_written(boost::beast::error_code error);
  void next_request();
  void say_goodbye();
  void cancel_read(Clock::time_point give_up);
  void drain();
  void finish();

  const std::shared_ptr<ServerContext> context_;  // outlives the socket
  ConnectionRegistry::Place place_;
  const std::shared_ptr<tls::Context> tls_;
  const std::optional<HttpResponse> refusal_;
  const std::string address_;
  SocketStream stream_;
  const std::shared_ptr<Strand> strand_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;  // a new one for each request
  State state_ = State::kHeader;

  HttpRequest request_;
  const HttpRoute* route_ = nullptr;
  std::shared_ptr<Caller> caller_;  // of the request; null: nothing of it has been read yet
  std::vector<HttpField> fields_;   // of its answer, whatever that is
  std::string body_piece_;          // buffer for what is read next of a body
  MemoryLimit::Part body_part_;
  std::size_t num_raw_bytes_ = 0;             // read for the body so far, chunk framing included
  std::optional<HttpResponse> body_refusal_;  // why the body is not read to its end
  // When the body began; moved on by the time that the server itself waits.
  std::atomic<Clock::time_point> body_since_ = Clock::time_point();
  boost::asio::steady_timer read_timer_;  // of a body, and of what is cancelled
  boost::asio::steady_timer pace_timer_;

  std::uint64_t request_number_ = 0;
  bool is_first_ = true;  // request of this connection
  bool keep_alive_ = false;
  bool is_head_ = false;
  bool is_counted_ = false;         // as a client
  std::optional<Framing> framing_;  // of a streamed answer that was begun
  bool watching_ = false;
  std::function<void()> on_gone_;
  std::function<void()> on_silence_;
  Clock::time_point enqueued_;  // what was last; or on_silence_ itself
  boost::asio::steady_timer silence_timer_;
  WriteQueue write_queue_;
  boost::asio::steady_timer close_timer_;
  bool stopping_ = false;
  std::size_t num_drained_ = 0;  // bytes
};

}  // namespace lmtp::server

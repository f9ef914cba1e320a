// One WebSocket connection: session.cpp reads, writes and closes; session_times.cpp has its timers.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "http/upgrade.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "net/client_stream.h"
#include "net/mailroom.h"
#include "net/patience.h"
#include "net/silence.h"
#include "net/write_queue.h"

namespace lmtp::server {

// Owner: the operations under way on its socket. Thread: its strand, where nothing else is said.
class Session : public Connection, public std::enable_shared_from_this<Session> {
 public:
  explicit Session(WebSocketUpgrade& upgrade);
  ~Session() override;

  void start(boost::beast::websocket::request_type request);
  void shut_down() override;
  void drop() override;
  Holding holding(Held what) const override;
  void give_up(Held what) override;
  void drop_if_revoked() override;

 private:
  // kAccepting -> kOpen -> kClosing (nothing more is read; the queue drains, then the close
  // handshake) -> kClosed.
  enum class State { kAccepting, kOpen, kClosing, kClosed };

  // What models deliver to a session, until it takes it. A weak reference in the handlers too: they
  // may outlive the server's threads in the io_context.
  class Inbox : public Mail {
   public:
    Inbox(boost::asio::any_io_executor strand, std::weak_ptr<Session> session)
        : strand_(std::move(strand)), session_(std::move(session)) {
      LMTP_CHECK(static_cast<bool>(strand_));  // every socket has one
    }
    void collect() override {
      boost::asio::dispatch(strand_, [weak = session_] {
        if (const auto self = weak.lock()) self->guard([&] { self->take_mail(); });
      });
    }
    void send(std::string message) const {
      boost::asio::post(strand_, [weak = session_, message = std::move(message)]() mutable {
        if (const auto self = weak.lock()) self->guard([&] { self->send({std::move(message)}); });
      });
    }
    using Mail::take;

   private:
    const boost::asio::any_io_executor strand_;
    const std::weak_ptr<Session> session_;
  };

  // Runs a handler's work; an exception costs this connection.
  template <typename Work>
  void guard(Work work);
  void become(State state);
  void on_accepted(boost::beast::error_code error);
  void read_more();
  void read_on_after(std::size_t num_bytes);
  void on_read(boost::beast::error_code error, std::size_t num_bytes);
  bool has_unfinished() const { return unfinished_since_.load() != runtime::Clock::time_point(); }
  void watch_message();
  void watch_pause();
  void watch_silence();
  void on_silence();
  void handle_message();
  void take_mail();
  void watch_deadline();
  void send(std::vector<std::string> messages);
  void write_next();
  void on_written(boost::beast::error_code error);
  void on_peer_closing();
  void on_given_up(Held what);
  void begin_close(boost::beast::websocket::close_code code, const std::string& reason);
  void send_close();
  void drop_after(Timeouts::Time timeout);
  void cut();
  void finish();

  const std::shared_ptr<ServerContext> context_;  // first, so that it outlives the socket
  ConnectionRegistry::Place place_;               // second, so that the socket closes before
  boost::asio::cancellation_signal read_signal_;
  boost::asio::cancellation_signal close_signal_;
  boost::asio::cancellation_signal ping_signal_;
  boost::beast::websocket::stream<ClientStream, false> socket_;
  boost::asio::steady_timer close_timer_;
  boost::asio::steady_timer deadline_timer_;
  std::shared_ptr<Inbox> inbox_;  // once it has started
  std::optional<runtime::Clock::time_point> watched_deadline_;
  Peer peer_;
  State state_ = State::kAccepting;
  bool stopping_ = false;  // shut_down came during the handshake

  boost::beast::flat_buffer read_buffer_;
  MemoryLimit::Part read_part_;  // the buffer's capacity
  // When the message began of which it holds a part; waits of the server's own making move it on.
  std::atomic<runtime::Clock::time_point> unfinished_since_ = runtime::Clock::time_point();
  boost::asio::steady_timer message_timer_;
  boost::asio::steady_timer pace_timer_;
  boost::asio::steady_timer pause_timer_;
  std::optional<Patience<ClientStream::Progress>> patience_;  // while the pause lasts
  boost::asio::steady_timer silence_timer_;
  Silence silence_;
  bool pings_ = false;               // a ping is being written
  ClientStream::Progress progress_;  // when its silence was last looked at

  WriteQueue write_queue_;
  boost::beast::websocket::close_reason close_reason_;
};

template <typename Work>
void Session::guard(Work work) {
  try {
    work();
  } catch (const std::exception& e) {
    log::error("connection " + std::to_string(place_.id()) + " failed: " + e.what());
    finish();
  }
}

}  // namespace lmtp::server

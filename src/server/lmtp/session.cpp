// A session reads one message at a time, acts on it and reads the next. What it sends waits in a
// queue with a limit in bytes: a peer that does not read loses its connection, never the engine's
// time. However a connection ends, its socket is closed at once or within a timeout, since an
// operation under way keeps the session, and a peer may see to it that none ends by itself.
#include "session.h"

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/refusals.h"
#include "mail_sink.h"
#include "net/client_stream.h"
#include "net/mailroom.h"
#include "net/patience.h"
#include "net/write_queue.h"

namespace lmtp::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = boost::beast::websocket;
using websocket::close_code;

using Clock = runtime::Clock;
constexpr std::size_t kReadChunkBytes = std::size_t{64} << 10;
// A larger buffer is given back after the message that needed it; any, where the buffers of all
// connections take more than half of their limit.
constexpr std::size_t kKeptReadBufferBytes = std::size_t{1} << 20;
constexpr std::chrono::milliseconds kPauseCheckMin{1};

// kAccepting -> kOpen -> kClosing (nothing more is read; the queue drains, then the close
// handshake) -> kClosed.
enum class State { kAccepting, kOpen, kClosing, kClosed };

class Session : public Connection, public std::enable_shared_from_this<Session> {
 public:
  explicit Session(WebSocketUpgrade& upgrade);
  ~Session() override;

  void start(websocket::request_type request);
  void shut_down() override;
  void drop() override;
  Holding holding(Held what) const override;
  void give_up(Held what) override;
  void drop_if_revoked() override;

 private:
  // What models deliver to a session, until it takes it. A weak reference in the handlers too: they
  // may outlive the server's threads in the io_context.
  class Inbox : public Mail {
   public:
    Inbox(asio::any_io_executor strand, std::weak_ptr<Session> session)
        : strand_(std::move(strand)), session_(std::move(session)) {
      LMTP_CHECK(static_cast<bool>(strand_));  // every socket has one
    }
    void collect() override {
      asio::dispatch(strand_, [weak = session_] {
        if (const auto self = weak.lock()) self->guard([&] { self->take_mail(); });
      });
    }
    void send(std::string message) const {
      asio::post(strand_, [weak = session_, message = std::move(message)]() mutable {
        if (const auto self = weak.lock()) self->guard([&] { self->send({std::move(message)}); });
      });
    }
    using Mail::take;

   private:
    const asio::any_io_executor strand_;
    const std::weak_ptr<Session> session_;
  };

  // Runs a handler's work; an exception costs this connection.
  template <typename Work>
  void guard(Work work);
  void become(State state);
  void on_accepted(beast::error_code error);
  void read_more();
  void read_on_after(std::size_t num_bytes);
  void on_read(beast::error_code error, std::size_t num_bytes);
  bool has_unfinished() const { return unfinished_since_.load() != Clock::time_point(); }
  void watch_message();
  void watch_pause();
  void handle_message();
  void take_mail();
  void watch_deadline();
  void send(std::vector<std::string> messages);
  void write_next();
  void on_written(beast::error_code error);
  void on_peer_closing();
  void on_given_up(Held what);
  void begin_close(close_code code, const std::string& reason);
  void send_close();
  void drop_after(Timeouts::Time timeout);
  void cut();
  void finish();

  const std::shared_ptr<ServerContext> context_;  // first, so that it outlives the socket
  ConnectionRegistry::Place place_;               // second, so that the socket closes before
  asio::cancellation_signal read_signal_;
  asio::cancellation_signal close_signal_;
  websocket::stream<ClientStream, false> socket_;
  asio::steady_timer close_timer_;
  asio::steady_timer deadline_timer_;
  std::shared_ptr<Inbox> inbox_;  // once it has started
  std::optional<Clock::time_point> watched_deadline_;
  Peer peer_;
  State state_ = State::kAccepting;
  bool stopping_ = false;  // shut_down came during the handshake

  beast::flat_buffer read_buffer_;
  MemoryLimit::Part read_part_;  // the buffer's capacity
  // When the message began of which it holds a part; waits of the server's own making move it on.
  std::atomic<Clock::time_point> unfinished_since_ = Clock::time_point();
  asio::steady_timer message_timer_;
  asio::steady_timer pace_timer_;
  asio::steady_timer pause_timer_;
  std::optional<Patience<ClientStream::Progress>> patience_;  // while the pause lasts

  WriteQueue write_queue_;
  websocket::close_reason close_reason_;
};

Session::Session(WebSocketUpgrade& upgrade)
    : context_(upgrade.context),
      place_(std::move(upgrade.place)),
      socket_(std::move(upgrade.stream), std::move(upgrade.early)),
      close_timer_(socket_.get_executor()),
      deadline_timer_(socket_.get_executor()),
      peer_(place_.id(), context_->operation_limits),
      read_buffer_(context_->options.max_message_bytes + 1),
      read_part_(context_->read_buffers),
      message_timer_(socket_.get_executor()),
      pace_timer_(socket_.get_executor()),
      pause_timer_(socket_.get_executor()),
      write_queue_(context_->registry, context_->write_queues,
                   context_->options.max_write_queue_bytes, place_.id(),
                   context_->options.trace.get()) {
  peer_.caller = std::move(upgrade.caller);
}

Session::~Session() { finish(); }

void Session::start(websocket::request_type request) {
  if (!place_.fill(weak_from_this())) return;
  inbox_ = std::make_shared<Inbox>(socket_.get_executor(), weak_from_this());
  peer_.sink = std::make_shared<MailSink>(context_, inbox_);
  peer_.send_later = [context = context_, inbox = inbox_](std::string message) {
    inbox->send(std::move(message));
  };
  websocket::stream_base::timeout timeout{};
  timeout.handshake_timeout = context_->options.timeouts.handshake;
  timeout.idle_timeout = context_->options.timeouts.idle;
  timeout.keep_alive_pings = true;
  socket_.set_option(timeout);
  socket_.set_option(websocket::stream_base::decorator(
      [server = "lmtp-serve/" + context_->options.version](websocket::response_type& response) {
        response.set(beast::http::field::server, server);
      }));
  socket_.read_message_max(0);  // on_read has the limit, and says so when it closes
  socket_.auto_fragment(false);
  socket_.text(true);
  // Both are called by operations of the socket, which keep the session.
  socket_.next_layer().on_teardown = [this] { on_peer_closing(); };
  socket_.control_callback([this](websocket::frame_type kind, beast::string_view) {
    if (kind == websocket::frame_type::close) on_peer_closing();
  });
  // This one may be called by an operation that has let go of it.
  socket_.next_layer().reading().on_paused = [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->state_ != State::kOpen || self->patience_) return;
    self->patience_.emplace(self->context_->options.timeouts.slow_reader,
                            self->socket_.next_layer().progress(), Clock::now());
    self->watch_pause();
  };
  const auto kept = std::make_shared<websocket::request_type>(std::move(request));
  socket_.async_accept(*kept, [self = shared_from_this(), kept](beast::error_code error) {
    self->guard([&] { self->on_accepted(error); });
  });
}

template <typename Work>
void Session::guard(Work work) {
  try {
    work();
  } catch (const std::exception& e) {
    log::error("connection " + std::to_string(place_.id()) + " failed: " + e.what());
    finish();
  }
}

void Session::drop() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->finish(); });
}

void Session::shut_down() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ == State::kClosing) self->drop_after(self->context_->options.timeouts.close);
    if (self->state_ == State::kAccepting) {  // no WebSocket yet: on_accepted says goodbye
      self->stopping_ = true;
      self->drop_after(self->context_->options.timeouts.close);
    }
    // The ends of streams that were drained may still be on their way here.
    if (self->state_ == State::kOpen) self->guard([&] { self->take_mail(); });
    self->begin_close(close_code::going_away, engine::shutting_down().message);
  });
}

void Session::drop_if_revoked() {
  if (peer_.caller->account == nullptr || !peer_.caller->account->is_revoked()) return;
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->begin_close(close_code::policy_error, "the key is not accepted any more");
  });
}

// A peer is counted while the connection is open, however it ends.
void Session::become(State state) {
  const ConnectionId share = share_of(peer_.caller.get(), place_.id());
  if (state == State::kOpen) context_->registry.add_client(share);
  if (state_ == State::kOpen) context_->registry.remove_client(share);
  state_ = state;
}

void Session::on_accepted(beast::error_code error) {
  if (error || state_ != State::kAccepting) return finish();
  become(State::kOpen);
  if (stopping_) return begin_close(close_code::going_away, engine::shutting_down().message);
  read_more();
}

void Session::read_more() {
  // One byte over the limit is enough to see that it is passed.
  const std::size_t num_left = context_->options.max_message_bytes + 1 - read_buffer_.size();
  auto on_some = [self = shared_from_this()](beast::error_code error, std::size_t read) {
    self->guard([&] { self->on_read(error, read); });
  };
  socket_.async_read_some(read_buffer_, std::min(num_left, kReadChunkBytes),
                          asio::bind_cancellation_slot(read_signal_.slot(), std::move(on_some)));
  if (!read_part_.set(read_buffer_.capacity())) {
    context_->registry.reclaim(Held::kUnfinishedMessage);
  }
}

// Long messages cost the processor that streams are computed on, and are refused as a rule.
void Session::read_on_after(std::size_t num_bytes) {
  const Clock::time_point due = context_->read_pace.after(num_bytes);
  unfinished_since_ = unfinished_since_.load() + (due - Clock::now());
  pace_timer_.expires_at(due);
  pace_timer_.async_wait([self = shared_from_this(), due](beast::error_code error) {
    if (error || self->state_ != State::kOpen) return;
    self->unfinished_since_ = self->unfinished_since_.load() + (Clock::now() - due);
    self->guard([&] { self->read_more(); });
  });
}

void Session::on_read(beast::error_code error, std::size_t num_bytes) {
  if (error) return finish();
  if (state_ != State::kOpen) return;
  const std::size_t limit = context_->options.max_message_bytes;
  if (read_buffer_.size() > limit) {
    return begin_close(close_code::too_big, "message too big: at most " + std::to_string(limit) +
                                                " bytes are allowed (--max-message-size)");
  }
  if (socket_.is_message_done()) {
    handle_message();
  } else if (!has_unfinished()) {
    unfinished_since_ = Clock::now();
    watch_message();
  }
  if (state_ != State::kOpen) return;
  if (read_buffer_.size() > kUnpacedBytes) return read_on_after(num_bytes);
  read_more();
}

void Session::watch_message() {
  const auto due = [this] { return unfinished_since_.load() + context_->options.timeouts.message; };
  message_timer_.expires_at(due());
  message_timer_.async_wait([self = shared_from_this(), due](beast::error_code error) {
    if (error || !self->has_unfinished()) return;
    if (Clock::now() < due()) return self->watch_message();
    self->begin_close(close_code::policy_error,
                      "a message took too long from its first to its last fragment");
  });
}

// Beast has an answer to write before it reads on, and until then nothing that the peer does is
// seen, its end neither. Where the peer takes nothing for so long, it is let go; one that reads
// slowly is not.
void Session::watch_pause() {
  pause_timer_.expires_after(
      std::max<Timeouts::Time>(context_->options.timeouts.slow_reader / 10, kPauseCheckMin));
  pause_timer_.async_wait([self = shared_from_this()](beast::error_code error) {
    ClientStream& stream = self->socket_.next_layer();
    if (error || self->state_ != State::kOpen || stream.reading().under_way) {
      return self->patience_.reset();
    }
    if (!self->patience_->is_over(stream.progress(), Clock::now())) return self->watch_pause();
    self->context_->registry.log_closed(self->place_.id(),
                                        "its client does not take what it was answered");
    self->finish();
  });
}

void Session::handle_message() {
  if (has_unfinished()) {
    unfinished_since_ = Clock::time_point();
    message_timer_.cancel();
  }
  std::vector<std::string> answers;
  if (socket_.got_binary()) {
    Dispatcher::handle_binary(answers);
  } else {
    const auto bytes = read_buffer_.cdata();
    const std::string_view text(static_cast<const char*>(bytes.data()), bytes.size());
    context_->dispatcher.handle(text, peer_, answers);
  }
  read_buffer_.clear();
  if (read_buffer_.capacity() > kKeptReadBufferBytes || context_->read_buffers.is_half_used()) {
    read_buffer_.shrink_to_fit();
  }
  send(std::move(answers));
  watch_deadline();
}

void Session::take_mail() {
  inbox_->take([this](std::span<StreamEvent> events) {
    std::vector<std::string> messages;
    context_->dispatcher.on_events(events, peer_, messages);
    send(std::move(messages));
    watch_deadline();
  });
}

// Of the streams, the one that comes first.
void Session::watch_deadline() {
  const auto next = peer_.streams.next_deadline();
  if (!next || state_ != State::kOpen) return;
  if (watched_deadline_ && *watched_deadline_ <= next->time) return;
  watched_deadline_ = next->time;
  deadline_timer_.expires_at(next->time);  // ends an earlier wait
  deadline_timer_.async_wait([weak = weak_from_this()](beast::error_code error) {
    const auto self = weak.lock();
    if (error || self == nullptr) return;
    self->guard([&] {
      self->watched_deadline_.reset();
      std::vector<std::string> messages;
      self->context_->dispatcher.end_overdue(Clock::now(), self->peer_, messages);
      self->send(std::move(messages));
      self->watch_deadline();
    });
  });
}

void Session::send(std::vector<std::string> messages) {
  if (state_ != State::kOpen) return;
  for (std::string& message : messages) {
    if (write_queue_.add(std::move(message))) continue;
    begin_close(close_code::policy_error,
                "the client does not read: more than " +
                    std::to_string(context_->options.max_write_queue_bytes) +
                    " bytes wait to be sent");
    return drop_after(context_->options.timeouts.slow_reader);
  }
  if (!write_queue_.writing() && !write_queue_.empty()) write_next();
}

void Session::write_next() {
  socket_.async_write(asio::buffer(write_queue_.begin_write()),
                      [self = shared_from_this()](beast::error_code error, std::size_t) {
                        self->guard([&] { self->on_written(error); });
                      });
}

void Session::on_written(beast::error_code error) {
  write_queue_.written();
  if (error) return finish();
  if (!write_queue_.empty()) return write_next();
  if (state_ == State::kClosing && close_reason_) send_close();  // else the peer began
}

// The peer closes, or broke the protocol: Beast answers, and waits for the peer.
void Session::on_peer_closing() {
  if (state_ != State::kOpen) return;
  become(State::kClosing);
  peer_.streams.cancel_all();
  write_queue_.clear();
  drop_after(context_->options.timeouts.close);
}

Holding Session::holding(Held what) const {
  if (what == Held::kWriteQueue) return {write_queue_.num_bytes(), {}};
  const Clock::time_point since = unfinished_since_;
  return {since != Clock::time_point() ? read_part_.bytes() : 0, since};
}

void Session::give_up(Held what) {
  what == Held::kWriteQueue ? write_queue_.give_up() : static_cast<void>(read_part_.set(0));
  asio::post(socket_.get_executor(),
             [self = shared_from_this(), what] { self->guard([&] { self->on_given_up(what); }); });
}

// Memory is short, so the peer is not waited for. It gets the reason if its socket takes it now.
void Session::on_given_up(Held what) {
  const bool is_write = what == Held::kWriteQueue;
  if (state_ == State::kClosed || (is_write ? write_queue_.empty() : !has_unfinished())) return;
  const std::string reason = why_given_up(what);
  context_->registry.log_closed(place_.id(), reason);
  if (state_ == State::kOpen && !write_queue_.writing()) {
    close_reason_ = websocket::close_reason(close_code::try_again_later, reason);
    send_close();
  }
  finish();
}

// What is queued is still sent, within the timeout; a caller that does not want that empties the
// queue first.
void Session::begin_close(close_code code, const std::string& reason) {
  if (state_ != State::kOpen) return;
  become(State::kClosing);
  peer_.streams.cancel_all();
  // A control frame holds 123 bytes of reason at most.
  close_reason_ = websocket::close_reason(code, reason.substr(0, 123));
  drop_after(context_->options.timeouts.close);
  if (!write_queue_.writing()) send_close();
}

void Session::send_close() {
  auto on_closed = [self = shared_from_this()](beast::error_code) { self->finish(); };
  socket_.async_close(close_reason_,
                      asio::bind_cancellation_slot(close_signal_.slot(), std::move(on_closed)));
}

// Then the peer has had its time: every pending operation ends with an error.
void Session::drop_after(Timeouts::Time timeout) {
  close_timer_.expires_after(timeout);  // ends an earlier wait
  close_timer_.async_wait([self = shared_from_this()](beast::error_code error) {
    if (!error) self->cut();
  });
}

// Beast's close may wait for its read, which waits for the close where the peer breaks the protocol
// just then: operations that wait for each other do not notice that the socket is closed.
void Session::cut() {
  beast::get_lowest_layer(socket_).close();
  read_signal_.emit(asio::cancellation_type::terminal);
  close_signal_.emit(asio::cancellation_type::terminal);
}

// The connection is gone, whichever side ended it. Operations under way end with an error, and with
// the last one the session. May be called more than once.
void Session::finish() {
  become(State::kClosed);
  peer_.streams.cancel_all();
  close_timer_.cancel();
  deadline_timer_.cancel();
  message_timer_.cancel();
  pace_timer_.cancel();
  pause_timer_.cancel();
  write_queue_.clear();
  cut();
}

}  // namespace

void start_session(WebSocketUpgrade& upgrade) {
  std::make_shared<Session>(upgrade)->start(std::move(upgrade.request));
}

}  // namespace lmtp::server

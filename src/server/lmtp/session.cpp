// A session reads one message at a time, acts on it and reads the next. What it sends waits in a
// queue with a limit in bytes: a peer that does not read loses its connection, never the engine's
// time. However a connection ends, its socket is closed at once or within a timeout, since an
// operation under way keeps the session, and a peer may see to it that none ends by itself.
#include "session.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/refusals.h"
#include "mail_sink.h"
#include "web_socket_session.h"

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

}  // namespace

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
      silence_timer_(socket_.get_executor()),
      silence_(context_->options.timeouts.idle),
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
  // Beast has no timers of its own unless it is told to.
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
  drop_after(context_->options.timeouts.handshake);
  const auto kept = std::make_shared<websocket::request_type>(std::move(request));
  socket_.async_accept(*kept, [self = shared_from_this(), kept](beast::error_code error) {
    self->guard([&] { self->on_accepted(error); });
  });
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
  close_timer_.expires_at(Clock::time_point::max());
  become(State::kOpen);
  if (stopping_) return begin_close(close_code::going_away, engine::shutting_down().message);
  watch_silence();
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

// Beast's close may wait for its read, which waits for the close where the peer breaks the protocol
// just then, and a ping for both: operations that wait for each other do not notice that the socket
// is closed.
void Session::cut() {
  beast::get_lowest_layer(socket_).close();
  read_signal_.emit(asio::cancellation_type::terminal);
  close_signal_.emit(asio::cancellation_type::terminal);
  ping_signal_.emit(asio::cancellation_type::terminal);
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
  silence_timer_.cancel();
  write_queue_.clear();
  cut();
}

void start_session(WebSocketUpgrade& upgrade) {
  std::make_shared<Session>(upgrade)->start(std::move(upgrade.request));
}

}  // namespace lmtp::server

// How long a WebSocket's peer is waited for: in a message, to take what it was answered, to say
// anything at all, for the end of its streams, and to close.
#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "lmtp/base/runtime.h"
#include "web_socket_session.h"

namespace lmtp::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using beast::websocket::close_code;
using Clock = runtime::Clock;
constexpr std::chrono::milliseconds kPauseCheckMin{1};

}  // namespace

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

void Session::watch_silence() {
  silence_timer_.expires_at(silence_.due());
  silence_timer_.async_wait([self = shared_from_this()](beast::error_code error) {
    if (!error && self->state_ == State::kOpen) self->guard([&] { self->on_silence(); });
  });
}

// A peer is not silent where it is not read from, or takes what it was sent and a ping has to wait
// for that.
void Session::on_silence() {
  ClientStream& stream = socket_.next_layer();
  const Clock::time_point now = Clock::now();
  const ClientStream::Progress progress = stream.progress();
  const bool takes = !(progress == progress_);
  progress_ = progress;
  const bool is_excused = !stream.reading().under_way || (pings_ && takes);
  const Silence::Next next = silence_.next(is_excused ? now : stream.reading().ended, now);
  if (next == Silence::Next::kGone) {
    context_->registry.log_closed(place_.id(),
                                  "nothing comes from its client, no answer to a ping");
    return finish();
  }
  if (next == Silence::Next::kAsk && !std::exchange(pings_, true)) {
    auto on_sent = [self = shared_from_this()](beast::error_code) { self->pings_ = false; };
    socket_.async_ping({}, asio::bind_cancellation_slot(ping_signal_.slot(), std::move(on_sent)));
  }
  watch_silence();
}

// The deadline that comes first.
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

// Then the peer has had its time: every pending operation ends with an error.
void Session::drop_after(Timeouts::Time timeout) {
  close_timer_.expires_after(timeout);  // ends an earlier wait
  close_timer_.async_wait([self = shared_from_this()](beast::error_code error) {
    // One that was ready when it was put off says that it is over, too.
    if (!error && self->close_timer_.expiry() <= Clock::now()) self->cut();
  });
}

}  // namespace lmtp::server

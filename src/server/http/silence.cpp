// What an HttpSession does while its answer says nothing.
#include <utility>

#include "http_session.h"

namespace lmtp::server {

void HttpSession::on_silence(std::chrono::milliseconds interval, std::function<void()> callback) {
  on_silence_ = std::move(callback);
  enqueued_ = Clock::now();
  await_silence(interval);
}

// Waits for the time at which it is silent if nothing comes until then, so that writing stays
// cheap.
void HttpSession::await_silence(std::chrono::milliseconds interval) {
  silence_timer_.expires_at(enqueued_ + interval);
  silence_timer_.async_wait([self = shared_from_this(), interval](boost::beast::error_code error) {
    if (error || self->state_ != State::kAnswering || !self->on_silence_) return;
    self->guard([&] {
      if (Clock::now() >= self->enqueued_ + interval) {
        self->enqueued_ = Clock::now();
        std::function<void()>(self->on_silence_)();
      }
      if (self->state_ == State::kAnswering) self->await_silence(interval);
    });
  });
}

}  // namespace lmtp::server

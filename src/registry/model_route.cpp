#include "model_route.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/text.h"
#include "lmtp/engine/refusals.h"
#include "lmtp/registry/models.h"

namespace lmtp::registry {

Error not_for(const Account& account, const std::string& name) {
  return {
      ErrorCode::kNotFound,
      "model: " + (name.empty() ? std::string("what is served by default") : quoted_name(name)) +
          " is not served with this key, allowed are " + account.models_text()};
}

Result<void> check_share(const Request& request, std::size_t num_held, std::size_t max_requests) {
  if (!request.others_connected) return {};
  const std::size_t most = std::max<std::size_t>(max_requests * 3 / 4, 1);
  if (num_held < most) return {};
  const std::string of_one = request.account() != nullptr ? "key" : "connection";
  return Error{ErrorCode::kOverloaded,
               "overloaded: " + std::to_string(most) + " requests of this " + of_one +
                   " are in flight, three quarters of " + std::to_string(max_requests) +
                   " (--max-concurrent-requests), and one may have no more while others are "
                   "connected; retry later"};
}

Result<bool> submit_to(ModelRoute& route, Request& request) {
  if (request.kind != RequestKind::kAwaitModel) return route.submit(request);
  deliver_now(*request.sink, ModelReady{request.key.stream});
  return true;
}

// Counts the ends of streams that pass through it. An engine delivers all events of a connection to
// the sink of one of its streams, so these are the ends of the connection's streams, not of one
// stream.
class ModelRoute::CountingSink final : public EventSink {
 public:
  CountingSink(std::shared_ptr<ModelRoute> route, ConnectionId share,
               std::shared_ptr<EventSink> inner)
      : route_(std::move(route)), share_(share), inner_(std::move(inner)) {}

  void deliver(std::span<StreamEvent> events) override {
    const int num_forks = num_forked(events);
    if (num_forks > 0) route_->count(share_, num_forks);
    // First, so that a client that has seen the end finds the model idle.
    const int num_ends = num_ended(events);
    if (num_ends > 0) route_->uncount(share_, num_ends, true);
    try {
      inner_->deliver(events);
    } catch (...) {  // forks and ends come again
      if (num_ends > 0) route_->recount(share_, num_ends);
      if (num_forks > 0) route_->uncount(share_, num_forks, true);
      throw;
    }
    if (num_ends > 0) route_->forget_if_none(share_);
  }

  std::shared_ptr<Waker> waker() override { return inner_->waker(); }

  const std::shared_ptr<EventSink>& inner() const { return inner_; }

 private:
  const std::shared_ptr<ModelRoute> route_;
  const ConnectionId share_;
  const std::shared_ptr<EventSink> inner_;
};

ModelRoute::ModelRoute(engine::EngineInstance engine, std::size_t max_requests,
                       std::shared_ptr<RouteOwner> owner)
    : engine_(std::move(engine)), max_requests_(max_requests), owner_(std::move(owner)) {}

Result<bool> ModelRoute::submit(Request& request) {
  const ConnectionId share = request.share();
  Result<bool> entered = enter(request);
  if (!entered || !*entered) return entered;
  std::shared_ptr<EventSink> sink = request.sink;
  try {
    wrap(request);
    const Result<void> submitted = engine_.submit(std::move(request));
    if (submitted) return true;
    request.sink = std::move(sink);  // NOLINT(bugprone-use-after-move): it was not taken
    uncount(share, 1);
    if (submitted.error().code == ErrorCode::kOverloaded) return submitted.error();
    return false;
  } catch (...) {
    uncount(share, 1);
    throw;
  }
}

Result<void> ModelRoute::submit_forks(std::vector<Request>& forks) {
  int num_entered = 0;
  const ConnectionId share = forks.front().share();
  const Result<void> taken = guarded([&]() -> Result<void> {
    for (Request& fork : forks) {
      const Result<bool> entered = enter(fork);
      if (!entered) return entered.error();
      if (!*entered) return engine::shutting_down();
      ++num_entered;
    }
    for (Request& fork : forks) wrap(fork);
    return engine_.submit_forks(forks);
  });
  if (!taken && num_entered > 0) uncount(share, num_entered);
  return taken;
}

bool ModelRoute::hand_over(std::vector<Request>& requests) {
  std::size_t num_counted = 0;
  const Result<bool> taken = guarded([&]() -> Result<bool> {
    for (Request& request : requests) {
      std::shared_ptr<EventSink> sink = request.sink;
      wrap(request);
      try {
        count(request.share(), 1);
      } catch (...) {
        request.sink = std::move(sink);
        throw;
      }
      ++num_counted;
    }
    return engine_.submit_all(requests);
  });
  if (!taken || !*taken) {
    for (std::size_t i = 0; i < num_counted; ++i) release(requests[i]);
  }
  const std::lock_guard lock(mutex_);
  opened_ = true;
  return taken && *taken;
}

void ModelRoute::release(Request& request) {
  uncount(request.share(), 1);
  request.sink = std::static_pointer_cast<CountingSink>(request.sink)->inner();
}

// If the engine has closed, its device was lost: the stream may be waiting for the next engine.
void ModelRoute::cancel(StreamKey key) {
  if (!engine_.cancel(key)) owner_->cancel(key);
}

void ModelRoute::cancel_later(StreamKey key) {
  if (!engine_.cancel(key)) owner_->cancel_later(key);
}

bool ModelRoute::close_if_idle() {
  const std::lock_guard lock(mutex_);
  closed_ = closed_ || num_streams_ == 0;
  return closed_;
}

ModelRoute::Usage ModelRoute::usage() const {
  const std::lock_guard lock(mutex_);
  return {num_streams_, last_used_};
}

Result<bool> ModelRoute::enter(const Request& request) {
  const std::lock_guard lock(mutex_);
  if (!opened_ || closed_) return false;
  std::size_t& num_held = num_held_[request.share()];
  if (const Result<void> share = check_share(request, num_held, max_requests_); !share) {
    Error refusal = share.error();
    refusal.wait_ms = engine_.expected_wait_ms();
    return refusal;
  }
  ++num_held;
  ++num_streams_;
  last_used_ = Clock::now();
  return true;
}

void ModelRoute::count(ConnectionId share, int count) {
  const std::lock_guard lock(mutex_);
  num_held_[share] += static_cast<std::size_t>(count);  // may throw
  num_streams_ += count;
  last_used_ = Clock::now();
}

void ModelRoute::uncount(ConnectionId share, int count, bool keeps) noexcept {
  bool idle = false;
  {
    const std::lock_guard lock(mutex_);
    const auto held = num_held_.find(share);
    LMTP_CHECK(held != num_held_.end(), share);
    LMTP_CHECK(held->second >= static_cast<std::size_t>(count), held->second, count);
    held->second -= static_cast<std::size_t>(count);
    if (held->second == 0 && !keeps) num_held_.erase(held);
    num_streams_ -= count;
    last_used_ = Clock::now();
    idle = num_streams_ == 0;
  }
  if (idle) owner_->became_idle();
}

void ModelRoute::recount(ConnectionId share, int count) noexcept {
  const std::lock_guard lock(mutex_);
  num_held_.at(share) += static_cast<std::size_t>(count);
  num_streams_ += count;
}

void ModelRoute::forget_if_none(ConnectionId share) noexcept {
  const std::lock_guard lock(mutex_);
  const auto held = num_held_.find(share);
  if (held != num_held_.end() && held->second == 0) num_held_.erase(held);
}

void ModelRoute::wrap(Request& request) {
  request.sink =
      std::make_shared<CountingSink>(shared_from_this(), request.share(), std::move(request.sink));
}

}  // namespace lmtp::registry

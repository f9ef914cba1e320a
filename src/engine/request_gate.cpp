#include "request_gate.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "inbox.h"
#include "lmtp/base/check.h"
#include "lmtp/engine/model_manager.h"

namespace lmtp::engine {
namespace {

constexpr std::chrono::milliseconds kNoticeInterval{kNoticeIntervalMs};

std::size_t bytes_of(const Request& request) {
  std::size_t bytes = (request.prompt.size() + request.scored.size()) * sizeof(TokenId);
  if (request.params.logit_bias != nullptr) {
    bytes += request.params.logit_bias->ids.size() * (sizeof(TokenId) + sizeof(float));
  }
  return bytes;
}

}  // namespace

// Tells the gate of the ends that pass through it. An engine delivers all events of a connection to
// the sink of one of its streams, so what is counted is the connection's events, not the stream's.
class RequestGate::CountingSink final : public EventSink {
 public:
  CountingSink(std::shared_ptr<RequestGate> gate, ConnectionId connection,
               std::shared_ptr<EventSink> inner)
      : gate_(std::move(gate)), connection_(connection), inner_(std::move(inner)) {}

  void deliver(std::vector<StreamEvent> events) override {
    const auto num_ends = std::count_if(events.begin(), events.end(), is_last);
    // First, so that whoever learns of the end finds the model idle.
    if (num_ends > 0) gate_->end_streams(connection_, static_cast<int>(num_ends));
    try {
      inner_->deliver(std::move(events));
    } catch (...) {
      if (num_ends > 0) gate_->take_back(connection_, static_cast<int>(num_ends));
      throw;
    }
  }

 private:
  const std::shared_ptr<RequestGate> gate_;
  const ConnectionId connection_;
  const std::shared_ptr<EventSink> inner_;
};

RequestGate::RequestGate(std::size_t max_requests, std::function<void()> on_unused)
    : max_requests_(max_requests), on_unused_(std::move(on_unused)), last_used_(Clock::now()) {}

// The request is checked outside the lock: the engine's thread takes it at the end of each stream.
RequestGate::Answer RequestGate::submit(Request& request) {
  std::shared_ptr<RequestGate> target;
  Limits limits;
  {
    const std::lock_guard lock(mutex_);
    target = target_;
    limits = limits_;
  }
  if (target != nullptr) return target->submit(request);
  if (limits != nullptr) {
    if (const Result<void> checked = check_request(request, *limits); !checked) {
      return {.outcome = Outcome::kRefused, .error = checked.error()};
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (target_ == nullptr) return take(request, limits);
  }
  return submit(request);  // it forwards since
}

RequestGate::Answer RequestGate::take(Request& request, const Limits& passed) {
  if (state_ == State::kClosed) return {.outcome = Outcome::kClosed, .error = {}};
  if (limits_ != nullptr && limits_ != passed) {
    if (const Result<void> checked = check_request(request, *limits_); !checked) {
      return {.outcome = Outcome::kRefused, .error = checked.error()};
    }
  }
  if (const Result<void> checked = check_share(request); !checked) {
    return {.outcome = Outcome::kRefused, .error = checked.error()};
  }
  const ConnectionId connection = request.key.connection;
  Answer answer = state_ == State::kOpen ? hand_over(request) : keep(request);
  if (answer.outcome == Outcome::kTaken) ++num_held_[connection];
  return answer;
}

// Among others no connection takes all places: whoever comes finds one.
Result<void> RequestGate::check_share(const Request& request) const {
  if (!request.others_connected) return {};
  const std::size_t most = std::max<std::size_t>(max_requests_ * 3 / 4, 1);
  const auto held = num_held_.find(request.key.connection);
  if (held == num_held_.end() || held->second < most) return {};
  return Error{ErrorCode::kOverloaded,
               "overloaded: " + std::to_string(most) +
                   " requests of this connection are in flight, three quarters of " +
                   std::to_string(max_requests_) +
                   " (--max-concurrent-requests), and one may have no more while others are "
                   "connected; retry later"};
}

void RequestGate::uncount(ConnectionId connection, int count) {
  const auto held = num_held_.find(connection);
  LMTP_CHECK(held != num_held_.end(), connection);
  LMTP_CHECK(held->second >= static_cast<std::size_t>(count), held->second, count);
  held->second -= static_cast<std::size_t>(count);
  if (held->second == 0) num_held_.erase(held);
}

void RequestGate::forget_waiting(const Request& request) {
  waiting_bytes_ -= bytes_of(request);
  uncount(request.key.connection, 1);
}

RequestGate::Answer RequestGate::hand_over(Request& request) {
  request.sink = std::make_shared<CountingSink>(shared_from_this(), request.key.connection,
                                                std::move(request.sink));
  if (const Result<void> submitted = engine_->submit(std::move(request)); !submitted) {
    return {.outcome = Outcome::kRefused, .error = submitted.error()};
  }
  ++num_alive_;
  last_used_ = Clock::now();
  return {};
}

RequestGate::Answer RequestGate::keep(Request& request) {
  if (waiting_.size() >= max_requests_) {
    return {.outcome = Outcome::kRefused, .error = overloaded(max_requests_)};
  }
  const std::size_t num_bytes = bytes_of(request);
  if (num_bytes > kWaitingBytesMax - waiting_bytes_) {
    return {.outcome = Outcome::kRefused,
            .error = Error{ErrorCode::kOverloaded,
                           "overloaded: requests of " + std::to_string(kWaitingBytesMax >> 20) +
                               " MiB in all wait for this model; retry when it is loaded"}};
  }
  waiting_bytes_ += num_bytes;
  request.sink->deliver({LoadingNotice{request.key.stream, request.model, percent_}});
  waiting_.push_back(std::move(request));
  last_used_ = Clock::now();
  return {};
}

void RequestGate::cancel(StreamKey key) {
  std::shared_ptr<RequestGate> target;
  std::optional<EngineInstance> engine;
  bool unused = false;
  {
    const std::lock_guard lock(mutex_);
    target = target_;
    engine = engine_;
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Request& r) { return r.key == key; });
    if (found != waiting_.end()) {
      found->sink->deliver({StreamError{key.stream, {ErrorCode::kCancelled, "cancelled"}}});
      forget_waiting(*found);
      waiting_.erase(found);
      unused = waiting_.empty();
    }
  }
  if (target != nullptr) return target->cancel(key);
  if (engine) return engine->cancel(key);
  if (unused) on_unused_();
}

void RequestGate::set_limits(const ModelLimits& limits) {
  set_limits(std::make_shared<const ModelLimits>(limits));
}

void RequestGate::set_limits(Limits limits) {
  const std::lock_guard lock(mutex_);
  limits_ = std::move(limits);
  std::erase_if(waiting_, [&](const Request& request) {
    const Result<void> checked = check_request(request, *limits_);
    if (checked) return false;
    request.sink->deliver({StreamError{request.key.stream, checked.error()}});
    forget_waiting(request);
    return true;
  });
}

void RequestGate::tell_progress(int percent) {
  const std::lock_guard lock(mutex_);
  percent_ = std::max(percent_, percent);
  const Clock::time_point now = Clock::now();
  if (percent_ == told_percent_ || now < next_notice_) return;
  told_percent_ = percent_;
  next_notice_ = now + kNoticeInterval;
  tell_waiting([this](const Request& request) {
    return LoadingNotice{request.key.stream, request.model, percent_};
  });
}

void RequestGate::open(const EngineInstance& engine) {
  const std::lock_guard lock(mutex_);
  LMTP_CHECK(limits_ != nullptr);
  if (state_ != State::kWaiting) return;  // shut in the meantime
  state_ = State::kOpen;
  engine_ = engine;
  percent_ = 100;
  last_used_ = Clock::now();
  move_waiting_to(*this);
}

bool RequestGate::forward_to(std::shared_ptr<RequestGate> to) {
  Limits limits;
  {
    const std::lock_guard lock(to->mutex_);
    limits = to->limits_;
  }
  // What that model cannot serve goes now: its engine may be running, and takes the other lock.
  if (limits != nullptr) set_limits(std::move(limits));
  // Both locks, so that a cancel finds each request here or there.
  const std::lock_guard lock(mutex_);
  const std::lock_guard lock_to(to->mutex_);
  if (to->state_ == State::kClosed) return false;
  if (state_ != State::kWaiting) return true;  // shut in the meantime
  move_waiting_to(*to);
  state_ = State::kForwarding;
  target_ = std::move(to);
  return true;
}

void RequestGate::move_waiting_to(RequestGate& to) {
  waiting_bytes_ = 0;
  num_held_.clear();  // while a gate waits, it has handed nothing over
  for (Request& request : std::exchange(waiting_, {})) {
    const StreamId id = request.key.stream;
    const std::shared_ptr<EventSink> sink = request.sink;
    const Answer answer = to.take(request, limits_);
    if (answer.outcome == Outcome::kTaken) continue;
    sink->deliver({StreamError{id, answer.error}});
  }
}

void RequestGate::fail(const Error& error) {
  close_waiting([&](const Request& r) {
    return StreamError{r.key.stream, error, /*no_model=*/true};
  });
}

void RequestGate::shut(const Error& error) {
  close_waiting([&](const Request& r) { return StreamError{r.key.stream, error}; });
}

void RequestGate::close_waiting(const MakeEvent& last_event) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kWaiting) return;
  state_ = State::kClosed;
  tell_waiting(last_event);
  waiting_.clear();
  waiting_bytes_ = 0;
  num_held_.clear();
}

// One delivery to each connection.
void RequestGate::tell_waiting(const MakeEvent& make_event) {
  std::vector<std::pair<std::shared_ptr<EventSink>, std::vector<StreamEvent>>> deliveries;
  std::unordered_map<ConnectionId, std::size_t> delivery_of;
  for (const Request& request : waiting_) {
    const auto [at, is_new] = delivery_of.try_emplace(request.key.connection, deliveries.size());
    if (is_new) deliveries.emplace_back(request.sink, std::vector<StreamEvent>());
    deliveries[at->second].second.push_back(make_event(request));
  }
  for (auto& [sink, events] : deliveries) sink->deliver(std::move(events));
}

void RequestGate::close() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  state_ = State::kClosed;
  engine_.reset();
}

bool RequestGate::close_if_deserted() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kWaiting || !waiting_.empty()) return false;
  state_ = State::kClosed;
  return true;
}

bool RequestGate::close_if_idle() {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen || num_alive_ > 0) return false;
  state_ = State::kClosed;
  engine_.reset();
  return true;
}

void RequestGate::end_streams(ConnectionId connection, int count) {
  bool unused = false;
  {
    const std::lock_guard lock(mutex_);
    LMTP_CHECK(num_alive_ >= count, num_alive_, count);
    num_alive_ -= count;
    uncount(connection, count);
    last_used_ = Clock::now();
    unused = num_alive_ == 0;
  }
  if (unused) on_unused_();
}

void RequestGate::take_back(ConnectionId connection, int count) {
  const std::lock_guard lock(mutex_);
  num_alive_ += count;
  num_held_[connection] += static_cast<std::size_t>(count);
}

RequestGate::Usage RequestGate::usage() const {
  const std::lock_guard lock(mutex_);
  const bool waits = state_ == State::kWaiting;
  return {waiting_.size(), num_alive_, waits ? Clock::now() : last_used_, percent_};
}

}  // namespace lmtp::engine

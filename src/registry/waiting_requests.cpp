#include "waiting_requests.h"

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "lmtp/engine/refusals.h"
#include "lmtp/registry/registry.h"
#include "model_route.h"

namespace lmtp::registry {
namespace {

std::size_t bytes_of(const Request& request) {
  std::size_t bytes = (request.prompt.size() + request.scored.size()) * sizeof(TokenId);
  if (request.params.logit_bias != nullptr) {
    bytes += request.params.logit_bias->ids.size() * (sizeof(TokenId) + sizeof(float));
  }
  return bytes;
}

}  // namespace

Result<void> WaitingRequests::add(Request& request, int percent) {
  const auto num_held = static_cast<std::size_t>(std::count_if(
      requests_.begin(), requests_.end(),
      [&](const Request& waiting) { return waiting.key.connection == request.key.connection; }));
  if (Result<void> share = check_share(request, num_held, max_requests_); !share) return share;
  if (requests_.size() >= max_requests_) return engine::overloaded(max_requests_);
  const std::size_t num_bytes = bytes_of(request);
  if (num_bytes > kWaitingBytesMax - num_bytes_) {
    return Error{ErrorCode::kOverloaded,
                 "overloaded: requests of " + std::to_string(kWaitingBytesMax >> 20) +
                     " MiB in all wait for this model; retry when it is loaded"};
  }
  request.sink->deliver({LoadingNotice{request.key.stream, request.model, percent}});
  requests_.push_back(std::move(request));
  num_bytes_ += num_bytes;
  return {};
}

void WaitingRequests::add_all(std::vector<Request> requests, int percent) {
  for (Request& request : requests) {
    if (const Result<void> added = add(request, percent); !added) {
      request.sink->deliver({StreamError{request.key.stream, added.error()}});
    }
  }
}

bool WaitingRequests::cancel(StreamKey key) {
  const auto found = std::find_if(requests_.begin(), requests_.end(),
                                  [&](const Request& request) { return request.key == key; });
  if (found == requests_.end()) return false;
  found->sink->deliver({StreamError{key.stream, {ErrorCode::kCancelled, "cancelled"}}});
  num_bytes_ -= bytes_of(*found);
  requests_.erase(found);
  return true;
}

void WaitingRequests::check(const engine::ModelLimits& limits) {
  std::erase_if(requests_, [&](const Request& request) {
    const Result<void> checked = engine::check_request(request, limits);
    if (checked) return false;
    request.sink->deliver({StreamError{request.key.stream, checked.error()}});
    num_bytes_ -= bytes_of(request);
    return true;
  });
}

void WaitingRequests::tell_progress(int percent) {
  const auto now = std::chrono::steady_clock::now();
  if (percent == told_percent_ || now < next_notice_) return;
  told_percent_ = percent;
  next_notice_ = now + std::chrono::milliseconds(kNoticeIntervalMs);
  tell_all([percent](const Request& request) {
    return LoadingNotice{request.key.stream, request.model, percent};
  });
}

void WaitingRequests::end_all(const Error& error, bool no_model) {
  tell_all([&](const Request& request) {
    return StreamError{request.key.stream, error, no_model};
  });
  take_all();
}

std::vector<Request> WaitingRequests::take_all() {
  num_bytes_ = 0;
  return std::exchange(requests_, {});
}

// One delivery to each connection.
void WaitingRequests::tell_all(const MakeEvent& make_event) {
  std::vector<std::pair<std::shared_ptr<EventSink>, std::vector<StreamEvent>>> deliveries;
  std::unordered_map<ConnectionId, std::size_t> delivery_of;
  for (const Request& request : requests_) {
    const auto [at, is_new] = delivery_of.try_emplace(request.key.connection, deliveries.size());
    if (is_new) deliveries.emplace_back(request.sink, std::vector<StreamEvent>());
    deliveries[at->second].second.push_back(make_event(request));
  }
  for (auto& [sink, events] : deliveries) sink->deliver(std::move(events));
}

}  // namespace lmtp::registry

#include "waiting_requests.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "lmtp/base/guarded.h"
#include "lmtp/base/runtime.h"
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
  if (request.params.mask != nullptr) {
    bytes += request.params.mask->words.size() * sizeof(std::uint64_t);
  }
  return bytes;
}

// One delivery to each connection.
template <typename MakeEvent>
void send_together(std::span<const Request> requests, const MakeEvent& make_event) {
  std::vector<std::pair<EventSink*, std::vector<StreamEvent>>> deliveries;
  std::unordered_map<ConnectionId, std::size_t> delivery_of;
  for (const Request& request : requests) {
    const auto [at, is_new] = delivery_of.try_emplace(request.key.connection, deliveries.size());
    if (is_new) deliveries.emplace_back(request.sink.get(), std::vector<StreamEvent>());
    deliveries[at->second].second.push_back(make_event(request));
  }
  for (auto& [sink, events] : deliveries) deliver_now(*sink, events);
}

StreamError error_of(const Request& request, const Error& error, bool no_model) {
  return {request.key.stream, error, no_model, request.key.sample};
}

// If the sink throws for lack of memory, it is tried once more.
void send_end(const Request& request, const Error& error, bool no_model) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Result<void> sent = guarded([&]() -> Result<void> {
      deliver_now(*request.sink, error_of(request, error, no_model));
      return {};
    });
    if (sent) return;
  }
}

}  // namespace

void end_stream(const Request& request, const Error& error, RefusalCounts& refusals) noexcept {
  refusals.add(request, error.code);
  send_end(request, error, false);
}

Result<void> WaitingRequests::add(Request& request, int percent) {
  std::size_t num_held = 0;
  std::size_t held_bytes = 0;
  for (const Request& waiting : requests_) {
    if (waiting.share() != request.share()) continue;
    ++num_held;
    held_bytes += bytes_of(waiting);
  }
  if (Result<void> share = check_share(request, num_held, max_requests_); !share) return share;
  if (requests_.size() >= max_requests_) return engine::overloaded(max_requests_);
  const std::size_t num_bytes = bytes_of(request);
  const std::size_t left = kWaitingBytesMax - (num_bytes_ - held_bytes);  // by the others
  if (held_bytes + num_bytes > left - left / 4) {
    return Error{ErrorCode::kOverloaded,
                 "overloaded: what waits for this model has at most " +
                     std::to_string(kWaitingBytesMax >> 20) +
                     " MiB, and one connection's three quarters of what the others leave; retry "
                     "when it is loaded"};
  }
  if (requests_.size() == requests_.capacity()) requests_.reserve(2 * requests_.size() + 1);
  deliver_now(*request.sink, LoadingNotice{request.key.stream, request.model, percent});
  requests_.push_back(std::move(request));
  num_bytes_ += num_bytes;
  return {};
}

bool WaitingRequests::cancel(StreamKey key) {
  const auto found = std::find_if(requests_.begin(), requests_.end(),
                                  [&](const Request& request) { return request.key == key; });
  if (found == requests_.end()) return false;
  deliver_now(*found->sink, error_of(*found, {ErrorCode::kCancelled, "cancelled"}, false));
  refusals_.add(*found, ErrorCode::kCancelled);
  num_bytes_ -= bytes_of(*found);
  requests_.erase(found);
  return true;
}

void WaitingRequests::check(const engine::ModelLimits& limits) noexcept {
  std::erase_if(requests_, [&](const Request& request) {
    const Result<void> checked = guarded([&] { return engine::check_request(request, limits); });
    if (checked) return false;
    end_stream(request, checked.error(), refusals_);
    num_bytes_ -= bytes_of(request);
    return true;
  });
}

void WaitingRequests::send_progress(int percent) {
  const auto now = runtime::Clock::now();
  if (percent == sent_percent_ || now < next_notice_) return;
  sent_percent_ = percent;
  next_notice_ = now + std::chrono::milliseconds(kNoticeIntervalMs);
  send_together(requests_, [percent](const Request& request) {
    return LoadingNotice{request.key.stream, request.model, percent};
  });
}

void WaitingRequests::end_all(const Error& error, bool no_model) noexcept {
  std::vector<Request> all = take_all();
  for (const Request& request : all) refusals_.add(request, error.code);
  const auto end_of = [&](const Request& request) { return error_of(request, error, no_model); };
  // Takes longer where there is no memory, and no more than that.
  std::stable_sort(all.begin(), all.end(), [](const Request& a, const Request& b) {
    return a.key.connection < b.key.connection;
  });
  for (auto first = all.begin(); first != all.end();) {
    const auto last = std::find_if(first, all.end(), [&](const Request& request) {
      return request.key.connection != first->key.connection;
    });
    const std::span<const Request> of_connection(&*first, static_cast<std::size_t>(last - first));
    const Result<void> sent = guarded([&]() -> Result<void> {
      send_together(of_connection, end_of);
      return {};
    });
    if (!sent) {
      for (const Request& request : of_connection) send_end(request, error, no_model);
    }
    first = last;
  }
}

void WaitingRequests::answer_awaiting() noexcept {
  std::erase_if(requests_, [&](const Request& request) {
    if (request.kind != RequestKind::kAwaitModel) return false;
    const Result<void> answered = guarded([&]() -> Result<void> {
      deliver_now(*request.sink, ModelReady{request.key.stream});
      return {};
    });
    if (!answered) end_stream(request, answered.error(), refusals_);
    num_bytes_ -= bytes_of(request);
    return true;
  });
}

std::vector<Request> WaitingRequests::take_all() {
  num_bytes_ = 0;
  return std::exchange(requests_, {});
}

std::vector<Request> WaitingRequests::take(const std::string& model) {
  std::vector<Request> taken;
  taken.reserve(requests_.size());
  std::erase_if(requests_, [&](Request& request) {
    if (request.model != model) return false;
    num_bytes_ -= bytes_of(request);
    taken.push_back(std::move(request));
    return true;
  });
  return taken;
}

void WaitingRequests::put_back(std::vector<Request> requests) {
  requests_ = std::move(requests);
  for (const Request& request : requests_) num_bytes_ += bytes_of(request);
}

}  // namespace lmtp::registry

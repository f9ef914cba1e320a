// The requests that wait for one model.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/engine.h"
#include "lmtp/registry/refusal_counts.h"
#include "lmtp/request/request.h"

namespace lmtp::registry {

// Ends the stream of a request that no engine has, and counts it.
void end_stream(const Request& request, const Error& error, RefusalCounts& refusals) noexcept;

// Owner: the model's slot; the actor's thread.
class WaitingRequests {
 public:
  // Requests that end here are counted in `refusals`, which must outlive this.
  WaitingRequests(std::size_t max_requests, RefusalCounts& refusals)
      : max_requests_(max_requests), refusals_(refusals) {}

  bool empty() const { return requests_.empty(); }
  std::size_t size() const { return requests_.size(); }

  // Keeps the request and sends it a notice of progress. The error says why it is refused.
  Result<void> add(Request& request, int percent);
  // Ends that stream; false if it does not wait here.
  bool cancel(StreamKey key);
  // Ends the requests that the model cannot serve.
  void check(const engine::ModelLimits& limits) noexcept;
  // Sends a notice at most once in kNoticeIntervalMs, and only if the number is new.
  void send_progress(int percent);
  void end_all(const Error& error, bool no_model) noexcept;
  // The model is ready: ends the requests that wait for that alone.
  void answer_awaiting() noexcept;
  std::vector<Request> take_all();
  // Those for that name, in order.
  std::vector<Request> take(const std::string& model);
  // What take_all() gave. REQUIRES: empty().
  void put_back(std::vector<Request> requests);

 private:
  const std::size_t max_requests_;
  RefusalCounts& refusals_;
  std::vector<Request> requests_;  // in order
  std::size_t num_bytes_ = 0;
  int sent_percent_ = 0;
  runtime::Clock::time_point next_notice_;
};

}  // namespace lmtp::registry

// What an engine keeps of one stream for the metrics and the log.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/engine_metrics.h"
#include "lmtp/request/request.h"

namespace lmtp::engine {

// Owner: the Engine; its thread. The times are the engine's: whatever happens in a step happens
// when the step ends, so that no token reads the clock.
class StreamRecord {
 public:
  using Clock = runtime::Clock;

  explicit StreamRecord(const Request& request)
      : key_(request.key),
        model_(request.model),
        kind_(request.kind),
        caller_(request.caller),
        prompt_(request.logged_prompt),
        num_prompt_(static_cast<int>(request.prompt.size())),
        arrival_(request.arrival) {}

  // Of a fork that begins now.
  StreamRecord(const StreamRecord& parent, const StreamKey& key) : StreamRecord(parent) {
    key_ = key;
    num_tokens_ = 0;
    arrival_ = admission_ = Clock::now();
  }

  Clock::time_point arrival() const { return arrival_; }
  // Null: it counts for none.
  Account* account() const { return caller_ != nullptr ? caller_->account.get() : nullptr; }

  // Scheduled for the first time.
  void admitted(EngineMetrics& metrics, int num_cached, Clock::time_point now) {
    admission_ = now;
    num_cached_ = num_cached;
    metrics.queue_time.add((now - arrival_).count());
  }

  // Whether it is the first.
  bool token(EngineMetrics& metrics, Clock::time_point now) {
    const bool is_first = num_tokens_++ == 0;
    if (is_first) {
      first_token_ = now;
      metrics.time_to_first_token.add((now - arrival_).count());
    } else if (kind_ == RequestKind::kGenerate) {
      metrics.inter_token_latency.add((now - last_token_).count());
    }
    last_token_ = now;
    return is_first;
  }
  // TokenEvent::num_cached. What ends without having been scheduled has needed none of its prompt;
  // before that nobody knows what it will need.
  int num_cached(bool ends) const {
    if (admission_ != Clock::time_point()) return num_cached_;
    return ends ? num_prompt_ : -1;
  }

  // The end of the stream, one of the two. It is a line of the log, where there is memory for it.
  void finished(EngineMetrics& metrics, FinishReason reason) const noexcept;
  void failed(EngineMetrics& metrics, ErrorCode code) const noexcept;
  // The line of the log alone.
  void log_failed(ErrorCode code) const noexcept;

 private:
  void log(std::string_view outcome) const noexcept;
  void write_line(std::string_view outcome) const;

  StreamKey key_;
  std::string model_;
  RequestKind kind_;
  std::shared_ptr<const Caller> caller_;
  std::string prompt_;  // Request::logged_prompt
  int num_prompt_;
  int num_cached_ = 0;
  int num_tokens_ = 0;  // given to the client
  Clock::time_point arrival_;
  Clock::time_point admission_;  // of these: 0 where it has not happened
  Clock::time_point first_token_;
  Clock::time_point last_token_;
};

}  // namespace lmtp::engine

#include "stream_record.h"

#include <cstddef>
#include <cstdio>
#include <string>

#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "lmtp/base/text.h"
#include "lmtp/engine/refusals.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::engine {
namespace {

using Clock = StreamRecord::Clock;

// "12.3 ms", "-" where it has not happened.
std::string since(Clock::time_point arrival, Clock::time_point event) {
  if (event == Clock::time_point()) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms",
                std::chrono::duration<double, std::milli>(event - arrival).count());
  return text;
}

const char* name_of(RequestKind kind) {
  if (kind == RequestKind::kAwaitModel) return "await model";
  return kind == RequestKind::kScore ? "score" : "generate";
}

}  // namespace

void log_refused(const Request& request, ErrorCode cause) noexcept {
  if (!log::enabled(log::Level::kDebug)) return;
  (void)guarded([&]() -> Result<void> {
    StreamRecord(request).log_failed(cause);
    return {};
  });
}

void StreamRecord::finished(EngineMetrics& metrics, FinishReason reason) const {
  metrics.num_finished[static_cast<std::size_t>(reason)].add(1);
  metrics.request_latency.add((last_token_ - arrival_).count());
  metrics.request_prompt_tokens.add(num_prompt_);
  if (kind_ == RequestKind::kGenerate) metrics.request_generated_tokens.add(num_tokens_);
  log(kFinishNames[static_cast<std::size_t>(reason)]);
}

void StreamRecord::failed(EngineMetrics& metrics, ErrorCode code) const {
  metrics.num_failed[static_cast<std::size_t>(code)].add(1);
  log_failed(code);
}

void StreamRecord::log_failed(ErrorCode code) const { log(error_kind(code).name); }

void StreamRecord::log(std::string_view outcome) const {
  if (!log::enabled(log::Level::kDebug)) return;
  const bool is_score = kind_ == RequestKind::kScore;
  log::debug("request " + std::to_string(key_.connection) + "/" + std::to_string(key_.stream) +
             (model_.empty() ? "" : " to " + quoted_name(model_)) + ": " + name_of(kind_) +
             ", prompt " + std::to_string(num_prompt_) + " (cached " + std::to_string(num_cached_) +
             "), " + (is_score ? "scored " : "generated ") + std::to_string(num_tokens_) +
             ", queued " + since(arrival_, admission_) + ", first token " +
             since(arrival_, first_token_) + ", total " + since(arrival_, Clock::now()) + ": " +
             std::string(outcome));
}

}  // namespace lmtp::engine

#include "lmtp/engine/stream_record.h"

#include <cstddef>
#include <cstdio>
#include <string>

#include "lmtp/base/guarded.h"
#include "lmtp/base/json.h"
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

std::string name_of(RequestKind kind) {
  if (kind == RequestKind::kAwaitModel) return "await model";
  if (kind == RequestKind::kEmbed) return "embed";
  return kind == RequestKind::kScore ? "score" : "generate";
}

const char* result_of(RequestKind kind) {
  if (kind == RequestKind::kEmbed) return "embedded ";
  return kind == RequestKind::kScore ? "scored " : "generated ";
}

}  // namespace

void log_refused(const Request& request, ErrorCode cause) noexcept {
  if (!log::enabled(log::Level::kInfo)) return;
  guarded_twice([&] { StreamRecord(request).log_failed(cause); });
}

void StreamRecord::finished(EngineMetrics& metrics, FinishReason reason) const noexcept {
  metrics.num_finished[static_cast<std::size_t>(reason)].add(1);
  if (num_tokens_ == 0) {  // its controller has ended it before a token
    return log(kFinishNames[static_cast<std::size_t>(reason)]);
  }
  metrics.request_latency.add((last_token_ - arrival_).count());
  metrics.request_prompt_tokens.add(num_prompt_);
  if (admission_ != Clock::time_point()) {
    metrics.inference_time.add((last_token_ - admission_).count());
  }
  if (kind_ == RequestKind::kGenerate) {
    metrics.request_generated_tokens.add(num_tokens_);
    metrics.time_per_token.add((last_token_ - admission_).count() / num_tokens_);
  }
  log(kFinishNames[static_cast<std::size_t>(reason)]);
}

void StreamRecord::failed(EngineMetrics& metrics, ErrorCode code) const noexcept {
  metrics.num_failed[static_cast<std::size_t>(code)].add(1);
  log_failed(code);
}

void StreamRecord::log_failed(ErrorCode code) const noexcept { log(error_kind(code).name); }

// The end is counted and told: nothing may fail any more.
void StreamRecord::log(std::string_view outcome) const noexcept {
  if (!log::enabled(log::Level::kInfo)) return;
  guarded_twice([&] { write_line(outcome); });
}

void StreamRecord::write_line(std::string_view outcome) const {
  std::string line =
      "request " + std::to_string(key_.connection) + "/" + std::to_string(key_.stream);
  if (caller_ != nullptr) {
    caller_->is_logged = true;
    if (caller_->account != nullptr) line += " of " + caller_->account->name();
    if (!caller_->address.empty()) line += " at " + caller_->address;
  }
  if (!model_.empty()) line += " to " + quoted_name(model_);
  const bool has_route = caller_ != nullptr && !caller_->route.empty();
  line += ": " + (has_route ? caller_->route : name_of(kind_)) + ", prompt " +
          std::to_string(num_prompt_) + " (cached " + std::to_string(num_cached_) + "), " +
          result_of(kind_) + std::to_string(num_tokens_) + ", queued " +
          since(arrival_, admission_) + ", first token " + since(arrival_, first_token_) +
          ", total " + since(arrival_, Clock::now());
  if (!prompt_.empty()) {
    line += ", ";
    append_json_string(prompt_, line);
  }
  if (caller_ != nullptr) line += ids_text(*caller_);
  log::info(line + ": " + std::string(outcome));
}

}  // namespace lmtp::engine

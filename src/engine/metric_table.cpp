#include "lmtp/engine/metric_table.h"

#include <array>
#include <cstddef>

#include "lmtp/base/ids.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::engine {
namespace {

using Stats = const EngineStats&;
using enum MetricType;

template <auto member>
double number(Stats s) {
  return static_cast<double>(s.*member);
}

std::array<std::string_view, kNumErrorCodes> cause_names() {
  std::array<std::string_view, kNumErrorCodes> names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = error_kind(static_cast<ErrorCode>(i)).name;
  }
  return names;
}
const std::array<std::string_view, kNumErrorCodes> kCauses = cause_names();

double kv_cache_usage(Stats s) {
  const int num_usable = s.agent.num_blocks - 1;  // one is never handed out
  return num_usable > 0 ? static_cast<double>(s.num_blocks_pinned) / num_usable : 0.0;
}

// clang-format off
const MetricRow kTable[] = {
    {.field = "num_steps", .name = "steps_total",
     .help = "Steps of the model.", .value = number<&EngineStats::num_steps>},
    {.field = "num_steps_ahead", .name = "steps_ahead_total",
     .help = "Of these, started on a device before the step before had ended.",
     .value = number<&EngineStats::num_steps_ahead>},
    {.field = "num_failed_steps", .name = "steps_failed_total",
     .help = "Of these, failed.", .value = number<&EngineStats::num_failed_steps>},
    {.field = "busy_us", .name = "busy_seconds_total",
     .help = "Time of the steps and between them.",
     .value = number<&EngineStats::busy_us>, .unit = 1e-6},
    {.field = "device_wait_us", .name = "device_wait_seconds_total",
     .help = "Of that, at least so much in which a device was at work, whatever the host did.",
     .value = number<&EngineStats::device_wait_us>, .unit = 1e-6},
    {.field = "num_tokens_computed", .name = "computed_tokens_total",
     .help = "Tokens that went through the model for a stream.",
     .value = number<&EngineStats::num_tokens_computed>},
    {.field = "num_prompt_tokens", .name = "prompt_tokens_total",
     .help = "Tokens of the prompts of requests that were scheduled.",
     .value = number<&EngineStats::num_prompt_tokens>},
    {.name = "prefix_cache_queries_total",
     .help = "Tokens looked up in the prefix cache: those of all prompts.",
     .value = number<&EngineStats::num_prompt_tokens>},
    {.field = "num_cached_tokens", .name = "prefix_cache_hits_total",
     .help = "Of these, found there.", .value = number<&EngineStats::num_cached_tokens>},
    {.field = "num_partial_hits", .name = "prefix_cache_partial_hits_total",
     .help = "Requests whose cached prefix ended inside a KV block.",
     .value = number<&EngineStats::num_partial_hits>},
    {.field = "num_generated_tokens", .name = "generation_tokens_total",
     .help = "Tokens generated.", .value = number<&EngineStats::num_generated_tokens>},
    {.field = "num_scored_tokens", .name = "scored_tokens_total",
     .help = "Tokens scored.", .value = number<&EngineStats::num_scored_tokens>},
    {.field = "num_preemptions", .name = "num_preemptions_total",
     .help = "Streams set back for lack of KV blocks; they resume by themselves.",
     .value = number<&EngineStats::num_preemptions>},
    {.field = "num_waiting", .name = "num_requests_waiting", .type = kGauge,
     .help = "Requests that wait to be scheduled.", .value = number<&EngineStats::num_waiting>},
    {.field = "num_running", .name = "num_requests_running", .type = kGauge,
     .help = "Requests with a place in each step.", .value = number<&EngineStats::num_running>},
    {.field = "num_blocks", .name = "kv_cache_blocks", .type = kGauge,
     .help = "KV blocks in all; one of them is never handed out.",
     .value = [](Stats s) { return static_cast<double>(s.agent.num_blocks); }},
    {.field = "num_blocks_free", .name = "kv_cache_blocks_free", .type = kGauge,
     .help = "Of these, empty.", .value = number<&EngineStats::num_blocks_free>},
    {.field = "num_blocks_evictable", .name = "kv_cache_blocks_evictable", .type = kGauge,
     .help = "Of these, kept for the prefix cache alone.",
     .value = number<&EngineStats::num_blocks_evictable>},
    {.field = "num_blocks_pinned", .name = "kv_cache_blocks_pinned", .type = kGauge,
     .help = "Of these, in use by running requests.",
     .value = number<&EngineStats::num_blocks_pinned>},
    {.name = "kv_cache_usage_perc", .type = kGauge,
     .help = "The part of the KV blocks that is in use; 1 is all.", .value = kv_cache_usage},
    {.field = "tokens_per_block", .name = "kv_cache_block_tokens", .type = kGauge,
     .help = "Tokens in one KV block.",
     .value = [](Stats) { return static_cast<double>(kBlockSize); }},
    {.field = "kv_cache_bytes", .name = "kv_cache_bytes", .type = kGauge,
     .help = "Memory of the KV cache.",
     .value = [](Stats s) { return static_cast<double>(s.agent.kv_bytes); }},

    {.name = "request_success_total",
     .help = "Requests that finished, by finish_reason.",
     .by_label = [](Stats s, std::size_t at) {
       return static_cast<double>(s.metrics.num_finished[at].value());
     },
     .label = "finished_reason", .label_values = kFinishNames},
    {.name = "request_failure_total",
     .help = "Requests that an engine had and that ended with an error, by cause.",
     .by_label = [](Stats s, std::size_t at) {
       return static_cast<double>(s.metrics.num_failed[at].value());
     },
     .label = "cause", .label_values = kCauses},

    {.name = "request_queue_time_seconds", .type = kHistogram,
     .help = "From a request's arrival until it is first scheduled, a model's loading included.",
     .histogram = &EngineMetrics::queue_time},
    {.name = "time_to_first_token_seconds", .type = kHistogram,
     .help = "From a request's arrival until its first token.",
     .histogram = &EngineMetrics::time_to_first_token},
    {.name = "inter_token_latency_seconds", .type = kHistogram,
     .help = "Between two tokens of a generation.",
     .histogram = &EngineMetrics::inter_token_latency},
    {.name = "e2e_request_latency_seconds", .type = kHistogram,
     .help = "From a request's arrival until its last token, of requests that finished.",
     .histogram = &EngineMetrics::request_latency},
    {.name = "request_prompt_tokens", .type = kHistogram,
     .help = "Tokens of the prompt, of requests that finished.",
     .histogram = &EngineMetrics::request_prompt_tokens},
    {.name = "request_generation_tokens", .type = kHistogram,
     .help = "Tokens generated, of generations that finished.",
     .histogram = &EngineMetrics::request_generated_tokens},
    {.name = "iteration_tokens", .type = kHistogram,
     .help = "Tokens of a step.", .histogram = &EngineMetrics::step_tokens},
    {.name = "iteration_requests", .type = kHistogram,
     .help = "Requests of a step: the batch size.", .histogram = &EngineMetrics::step_streams},
};
// clang-format on

}  // namespace

std::string_view type_name(MetricType type) {
  switch (type) {
    case kCounter:
      return "counter";
    case kGauge:
      return "gauge";
    case kHistogram:
      break;
  }
  return "histogram";
}

std::span<const MetricRow> metric_table() { return kTable; }

}  // namespace lmtp::engine

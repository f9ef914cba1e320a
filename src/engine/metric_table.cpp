#include "lmtp/engine/metric_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>

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

double num_of(Stats s, FinishReason reason) {
  return static_cast<double>(s.metrics.num_finished[static_cast<std::size_t>(reason)].value());
}

double num_finished(Stats s) {
  return num_of(s, FinishReason::kStop) + num_of(s, FinishReason::kLength);
}

double num_failed(Stats s) {
  double sum = 0.0;
  for (const auto& failed : s.metrics.num_failed) sum += static_cast<double>(failed.value());
  return sum;
}

constexpr std::array<std::string_view, 3> kVllmReasons = {"stop", "length", "abort"};

// Why TGI's requests fail.
constexpr std::array<std::string_view, 4> kTgiErrors = {"validation", "overloaded", "dropped",
                                                        "generation"};

std::string_view tgi_error(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kTooLong:
    case ErrorCode::kNotFound:
      return "validation";
    case ErrorCode::kOverloaded:
      return "overloaded";
    case ErrorCode::kCancelled:
      return "dropped";
    default:
      return "generation";
  }
}

double num_tgi_errors(Stats s, std::size_t at) {
  double sum = 0.0;
  for (std::size_t i = 0; i < kNumErrorCodes; ++i) {
    if (tgi_error(static_cast<ErrorCode>(i)) != kTgiErrors[at]) continue;
    sum += static_cast<double>(s.metrics.num_failed[i].value());
  }
  return sum;
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
     .vllm = "vllm:prompt_tokens_total",
     .help = "Tokens of the prompts of requests that were scheduled, or scored from the cache.",
     .value = number<&EngineStats::num_prompt_tokens>},
    {.name = "prefix_cache_queries_total",
     .vllm = "vllm:prefix_cache_queries_total",
     .help = "Tokens looked up in the prefix cache: those of all prompts.",
     .value = number<&EngineStats::num_prompt_tokens>},
    {.field = "num_cached_tokens", .name = "prefix_cache_hits_total",
     .vllm = "vllm:prefix_cache_hits_total",
     .help = "Of these, found there.", .value = number<&EngineStats::num_cached_tokens>},
    {.field = "num_partial_hits", .name = "prefix_cache_partial_hits_total",
     .help = "Requests whose cached prefix ended inside a KV block.",
     .value = number<&EngineStats::num_partial_hits>},
    {.field = "num_generated_tokens", .name = "generation_tokens_total",
     .vllm = "vllm:generation_tokens_total",
     .help = "Tokens generated.", .value = number<&EngineStats::num_generated_tokens>},
    {.field = "num_accepted_drafts", .name = "accepted_drafts_total",
     .help = "Of those generated, tokens that were drafts before (--speculate).",
     .value = number<&EngineStats::num_accepted_drafts>},
    {.field = "num_refused_drafts", .name = "refused_drafts_total",
     .help = "Of the tokens computed, drafts that did not become tokens of their stream.",
     .value = number<&EngineStats::num_refused_drafts>},
    {.field = "num_scored_tokens", .name = "scored_tokens_total",
     .help = "Tokens scored.", .value = number<&EngineStats::num_scored_tokens>},
    {.field = "num_cached_scores", .name = "score_cache_hits_total",
     .help = "Of these, known from before and not computed.",
     .value = number<&EngineStats::num_cached_scores>},
    {.field = "num_preemptions", .name = "num_preemptions_total",
     .vllm = "vllm:num_preemptions_total",
     .help = "Streams set back for lack of KV blocks; they resume by themselves.",
     .value = number<&EngineStats::num_preemptions>},
    {.field = "num_adapter_loads", .name = "adapter_loads_total",
     .help = "Adapters whose weights were written to KV blocks.",
     .value = number<&EngineStats::num_adapter_loads>},
    {.field = "num_forced_tokens", .name = "forced_tokens_total",
     .help = "Of those generated, tokens that were certain by their stream's constraint.",
     .value = number<&EngineStats::num_forced_tokens>},
    {.field = "num_masks", .name = "masks_total",
     .help = "Rows of steps that waited for what their stream's constraint allows.",
     .value = number<&EngineStats::num_masks>},
    {.field = "num_late_masks", .name = "masks_late_total",
     .help = "Of these, skipped because it took too long, and computed again.",
     .value = number<&EngineStats::num_late_masks>},
    {.field = "mask_wait_us", .name = "mask_wait_seconds_total",
     .help = "Time that steps waited for masks.",
     .value = number<&EngineStats::mask_wait_us>, .unit = 1e-6},
    {.field = "num_waiting", .name = "num_requests_waiting",
     .vllm = "vllm:num_requests_waiting", .tgi = "tgi_queue_size", .type = kGauge,
     .help = "Requests that wait to be scheduled.", .value = number<&EngineStats::num_waiting>},
    {.field = "num_running", .name = "num_requests_running",
     .vllm = "vllm:num_requests_running", .tgi = "tgi_batch_current_size", .type = kGauge,
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
    {.field = "num_blocks_adapter", .name = "kv_cache_blocks_adapter", .type = kGauge,
     .help = "Of these, with the weights of adapters.",
     .value = number<&EngineStats::num_blocks_adapter>},
    {.name = "kv_cache_usage_perc",
     .vllm = "vllm:kv_cache_usage_perc", .type = kGauge,
     .help = "The part of the KV blocks that is in use; 1 is all.", .value = kv_cache_usage},
    {.field = "num_kv_groups", .name = "kv_cache_groups", .type = kGauge,
     .help = "Groups of layers, each of which has blocks of its own for a token.",
     .value = [](Stats s) { return static_cast<double>(s.agent.kv_layout.num_with_layers()); }},
    {.field = "tokens_per_block", .name = "kv_cache_block_tokens", .type = kGauge,
     .help = "Tokens in one KV block, of the layers of a group.",
     .value = [](Stats) { return static_cast<double>(kBlockSize); }},
    {.field = "kv_cache_bytes", .name = "kv_cache_bytes", .type = kGauge,
     .help = "Memory of the KV cache.",
     .value = [](Stats s) { return static_cast<double>(s.agent.kv_bytes); }},
    {.field = "num_host_blocks", .name = "host_cache_blocks", .type = kGauge,
     .help = "Blocks of the host for what is evicted from the KV cache.",
     .value = [](Stats s) { return static_cast<double>(s.agent.num_host_blocks); }},
    {.field = "num_host_blocks_used", .name = "host_cache_blocks_used", .type = kGauge,
     .help = "Of these, not empty.", .value = number<&EngineStats::num_host_blocks_used>},
    {.field = "num_swapped_out", .name = "host_cache_swapped_out_total",
     .help = "Blocks that went to the host.", .value = number<&EngineStats::num_swapped_out>},
    {.field = "num_swapped_in", .name = "host_cache_swapped_in_total",
     .help = "Blocks that came back from there.", .value = number<&EngineStats::num_swapped_in>},
    {.field = "num_host_hits", .name = "host_cache_hits_total",
     .help = "Requests and preempted ones for which some did.",
     .value = number<&EngineStats::num_host_hits>},
    {.field = "score_cache_bytes", .name = "score_cache_bytes", .type = kGauge,
     .help = "What the log probabilities that are kept may take.",
     .value = number<&EngineStats::score_cache_bytes>},
    {.field = "score_cache_bytes_used", .name = "score_cache_bytes_used", .type = kGauge,
     .help = "Of these, in use.", .value = number<&EngineStats::score_cache_bytes_used>},

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

    {.name = "request_queue_time_seconds",
     .vllm = "vllm:request_queue_time_seconds", .tgi = "tgi_request_queue_duration",
     .type = kHistogram,
     .help = "From a request's arrival until it is first scheduled, a model's loading included.",
     .histogram = &EngineMetrics::queue_time},
    {.name = "time_to_first_token_seconds",
     .vllm = "vllm:time_to_first_token_seconds", .type = kHistogram,
     .help = "From a request's arrival until its first token.",
     .histogram = &EngineMetrics::time_to_first_token},
    {.name = "inter_token_latency_seconds",
     .vllm = "vllm:inter_token_latency_seconds", .type = kHistogram,
     .help = "Between two tokens of a generation.",
     .histogram = &EngineMetrics::inter_token_latency},
    {.name = "e2e_request_latency_seconds",
     .vllm = "vllm:e2e_request_latency_seconds", .tgi = "tgi_request_duration", .type = kHistogram,
     .help = "From a request's arrival until its last token, of requests that finished.",
     .histogram = &EngineMetrics::request_latency},
    {.name = "request_inference_time_seconds",
     .vllm = "vllm:request_inference_time_seconds", .tgi = "tgi_request_inference_duration",
     .type = kHistogram,
     .help = "From when a request is first scheduled until its last token, of those that finished.",
     .histogram = &EngineMetrics::inference_time},
    {.name = "request_time_per_token_seconds",
     .tgi = "tgi_request_mean_time_per_token_duration", .type = kHistogram,
     .help = "That time for each of its tokens, of generations that finished.",
     .histogram = &EngineMetrics::time_per_token},
    {.name = "request_prompt_tokens",
     .vllm = "vllm:request_prompt_tokens", .tgi = "tgi_request_input_length", .type = kHistogram,
     .help = "Tokens of the prompt, of requests that finished.",
     .histogram = &EngineMetrics::request_prompt_tokens},
    {.name = "request_generation_tokens",
     .vllm = "vllm:request_generation_tokens", .tgi = "tgi_request_generated_tokens",
     .type = kHistogram,
     .help = "Tokens generated, of generations that finished.",
     .histogram = &EngineMetrics::request_generated_tokens},
    {.name = "iteration_tokens",
     .vllm = "vllm:iteration_tokens_total", .type = kHistogram,
     .help = "Tokens of a step.", .histogram = &EngineMetrics::step_tokens},
    {.name = "iteration_requests", .type = kHistogram,
     .help = "Requests of a step: the batch size.", .histogram = &EngineMetrics::step_streams},

    {.vllm = "vllm:request_success_total",
     .help = "Requests that ended; those of any error are aborted.",
     .by_label = [](Stats s, std::size_t at) {
       if (at == 2) return num_failed(s);
       return num_of(s, at == 0 ? FinishReason::kStop : FinishReason::kLength);
     },
     .label = "finished_reason", .label_values = kVllmReasons},
    {.vllm = "vllm:gpu_cache_usage_perc", .type = kGauge,
     .help = "As kv_cache_usage_perc: its older name.", .value = kv_cache_usage},
    {.vllm = "vllm:cpu_cache_usage_perc", .type = kGauge,
     .help = "The part of the host's blocks that is in use; 1 is all.",
     .value = [](Stats s) {
       return static_cast<double>(s.num_host_blocks_used) / std::max(1, s.agent.num_host_blocks);
     }},
    {.vllm = "vllm:cache_config_info", .type = kGauge,
     .help = "The KV cache, by labels.", .value = [](Stats) { return 1.0; },
     .info = [](Stats s) -> std::vector<std::pair<std::string, std::string>> {
       return {{"block_size", std::to_string(kBlockSize)},
               {"num_gpu_blocks", std::to_string(s.agent.num_blocks)},
               {"num_cpu_blocks", std::to_string(s.agent.num_host_blocks)},
               {"enable_prefix_caching", "True"}};
     }},
    {.vllm = "vllm:lora_requests_info", .type = kGauge,
     .help = "Adapters, by labels; the value is the time.",
     .value = [](Stats) { return static_cast<double>(std::time(nullptr)); },
     .info = [](Stats s) -> std::vector<std::pair<std::string, std::string>> {
       return {{"max_lora", std::to_string(s.max_adapters)},
               {"running_lora_adapters", s.running_adapters},
               {"waiting_lora_adapters", s.waiting_adapters}};
     }},
    {.tgi = "tgi_request_count",
     .help = "Requests that ended.",
     .value = [](Stats s) { return num_finished(s) + num_failed(s); }, .has_refused = true},
    {.tgi = "tgi_request_success", .help = "Of these, finished.", .value = num_finished},
    {.tgi = "tgi_request_failure", .help = "Of these, failed.", .by_label = num_tgi_errors,
     .label = "err", .label_values = kTgiErrors, .has_refused = true},
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

#include "report_json.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/base/version.h"
#include "metric.h"

namespace lmtp::tools {
namespace {

OrderedJson number(double value) {
  return std::isinf(value) ? OrderedJson("inf") : OrderedJson(value);
}

double rounded_ms(double seconds) { return std::round(seconds * 1e7) / 1e4; }

template <typename T, typename ToJson>
OrderedJson array(const std::vector<T>& items, ToJson to_json) {
  OrderedJson all = OrderedJson::array();
  for (const T& item : items) all.push_back(to_json(item));
  return all;
}

OrderedJson null_unless(bool known, OrderedJson value) {
  return known ? std::move(value) : OrderedJson();
}
OrderedJson ids_or_null(const std::vector<TokenId>& ids) { return null_unless(!ids.empty(), ids); }
OrderedJson count_or_null(std::int64_t count) { return null_unless(count > 0, count); }

void add_times(const BenchOptions& options, const std::string& key, const TimeHistogram& times,
               OrderedJson& fields) {
  const auto ms = [&times](double seconds) {
    return null_unless(times.count() > 0, rounded_ms(seconds));
  };
  fields["mean_" + key + "_ms"] = ms(times.mean_s());
  for (const double percentile : options.percentiles) {
    fields[percentile_name(percentile) + "_" + key + "_ms"] =
        ms(times.quantile_s(percentile / 100));
  }
  fields["max_" + key + "_ms"] = ms(times.max_s());
}

OrderedJson request_json(const RequestRecord& record) {
  return {
      {"start_s", number(record.start_s)},
      {"kind", record.score ? "score" : "generate"},
      {"input_tokens", record.num_prompt_tokens},
      {"output_tokens", record.num_tokens},
      {"ttft_ms", null_unless(record.num_tokens > 0, rounded_ms(record.ttft_s))},
      {"e2el_ms", rounded_ms(record.e2el_s)},
      {"outcome", record.outcome},
  };
}

OrderedJson point_json(const BenchOptions& options, const SweepResult& result) {
  const SweepPoint& point = result.point;
  const LoadStats& stats = result.stats;
  OrderedJson errors = OrderedJson::object();
  for (const auto& [text, count] : stats.errors) errors[text] = count;
  OrderedJson fields = {
      {"max_concurrency",
       null_unless(point.max_concurrency.has_value(), point.max_concurrency.value_or(0))},
      {"request_rate",
       point.load.arrivals_s.empty() ? number(point.load.request_rate) : OrderedJson("trace")},
      {"num_prompts", count_or_null(point.load.num_requests)},
      {"seed", point.load.workload->seed},
      {"duration", number(stats.duration_s)},
      {"interrupted", stats.interrupted},
      {"completed", stats.num_completed},
      {"failed", stats.num_failed},
      {"stopped_early", stats.num_stopped},
      {"unfinished", stats.num_unfinished},
      {"programs_started", stats.num_programs},
      {"programs_completed", stats.num_programs_done},
      {"programs_not_sent", stats.num_not_sent},
      {"stray_tokens", stats.num_stray},
      {"max_concurrent_requests", stats.peak_requests},
      {"max_concurrent_programs", stats.peak_programs},
      {"errors", std::move(errors)},
      {"total_input_tokens", stats.num_prompt_tokens},
      {"total_output_tokens", stats.num_tokens},
      {"request_throughput", number(per_second(stats.num_completed, stats))},
      {"output_throughput", number(per_second(stats.num_tokens, stats))},
      {"total_token_throughput",
       number(per_second(stats.num_tokens + stats.num_prompt_tokens, stats))},
  };
  for (const Metric metric : options.metrics) {
    add_times(options, std::string(metric_key(metric)), times_of(stats, metric), fields);
  }
  add_times(options, "program", stats.program, fields);
  add_times(options, "start_lag", stats.lag, fields);
  if (options.load.keep_records) fields["requests"] = array(stats.records, request_json);
  return fields;
}

const char* pattern_name(LmqlPattern pattern) {
  if (pattern == LmqlPattern::kChunks) return "chunks";
  return pattern == LmqlPattern::kBeams ? "beams" : "scores";
}

OrderedJson options_json(const BenchOptions& options, const ServerInfo& server,
                         const LoadOptions& first) {
  const LoadOptions& load = options.load;
  const WorkloadOptions& work = options.workload;
  return {
      {"connections", load.num_connections},
      {"vocab_size", first.workload->vocab_size},
      {"timeout", number(load.timeout_ms / 1e3)},
      {"max_concurrency", options.max_concurrencies},
      {"request_rate", array(options.request_rates, number)},
      {"burstiness", number(load.burstiness)},
      {"num_prompts", count_or_null(load.num_requests)},
      {"duration", null_unless(load.duration_s > 0, number(load.duration_s))},
      {"num_warmups", num_warmups(options, first)},
      {"seed", options.workload.seed},
      {"dataset_name", options.dataset_name},
      {"random_input_len", work.input_len},
      {"random_output_len", work.output_len},
      {"random_range_ratio", number(work.range_ratio)},
      {"prefix_len", work.prefix_len},
      {"num_prefix_groups", work.num_prefix_groups},
      {"prompt", ids_or_null(work.prompt)},
      {"score", work.score},
      {"temperature", number(static_cast<double>(load.temperature))},
      {"ignore_eos", options.ignore_eos},
      {"ban_token", ids_or_null(first.banned_tokens)},
      {"dataset_path", null_unless(!options.dataset_path.empty(), options.dataset_path)},
      {"use_trace_timestamps", options.use_trace_timestamps},
      {"trace_speedup", number(options.trace_speedup)},
      {"trace_length_divisor", work.trace_length_divisor},
      {"max_model_len", count_or_null(trace_length_max(options, server))},
      {"lmql_pattern", array(work.lmql, pattern_name)},
      {"lmql_mask_size", first.mask.size()},
      {"lmql_beams", work.lmql_beams},
      {"lmql_scores", work.lmql_scores},
      {"lmql_score_len", work.lmql_score_len},
      {"percentile_metrics", array(options.metrics, metric_key)},
      {"metric_percentiles", array(options.percentiles, number)},
      {"save_detailed", load.keep_records},
  };
}

}  // namespace

std::string report_json(const BenchOptions& options, const ServerInfo& server,
                        const std::string& date, const std::vector<SweepResult>& results) {
  const auto model_info = parse_ordered_json(server.json, "model_info");
  const auto point = [&](const SweepResult& result) { return point_json(options, result); };
  const OrderedJson report = {
      {"program", "lmtp-bench " + std::string(kVersion)},
      {"date", date},
      {"endpoint", address_text(options.load.host, options.load.port)},
      {"model", options.load.model},
      {"model_info", model_info ? *model_info : OrderedJson()},
      {"options", options_json(options, server, results.front().point.load)},
      {"points", array(results, point)},
  };
  return json_text(report) + "\n";
}

}  // namespace lmtp::tools

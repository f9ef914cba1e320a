#include "report_json.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "lmtp/base/version.h"
#include "lmtp/protocol/codec.h"
#include "metric.h"

namespace lmtp::tools {
namespace {

std::string number(double value) {
  if (std::isinf(value)) return "\"inf\"";
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return {text, end};
}

std::string rounded_ms(double seconds) { return number(std::round(seconds * 1e7) / 1e4); }

std::string quoted(std::string_view text) {
  std::string out;
  protocol::append_json_string(text, out);
  return out;
}

// Writes an object's fields in order; each value is JSON.
class Fields {
 public:
  Fields& add(std::string_view key, std::string_view json) {
    if (!text_.empty()) text_.append(", ");
    text_.append(quoted(key)).append(": ").append(json);
    return *this;
  }
  Fields& count(std::string_view key, std::int64_t value) {
    return add(key, std::to_string(value));
  }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

template <typename T, typename ToJson>
std::string array(const std::vector<T>& items, std::string_view separator, ToJson to_json) {
  std::string out = "[";
  for (const T& item : items) {
    if (out.size() > 1) out.append(separator);
    out.append(to_json(item));
  }
  return out + "]";
}

std::string boolean(bool value) { return value ? "true" : "false"; }

// Null where there is none.
std::string ids_json(const std::vector<TokenId>& ids) {
  return ids.empty() ? "null" : array(ids, ", ", [](TokenId id) { return std::to_string(id); });
}
std::string count_or_null(std::int64_t count) { return count > 0 ? std::to_string(count) : "null"; }

void add_times(const BenchOptions& options, const std::string& key, const TimeHistogram& times,
               Fields& fields) {
  const auto ms = [&times](double seconds) {
    return times.count() == 0 ? "null" : rounded_ms(seconds);
  };
  fields.add("mean_" + key + "_ms", ms(times.mean_s()));
  for (const double percentile : options.percentiles) {
    fields.add(percentile_name(percentile) + "_" + key + "_ms",
               ms(times.quantile_s(percentile / 100)));
  }
  fields.add("max_" + key + "_ms", ms(times.max_s()));
}

std::string request_json(const RequestRecord& record) {
  return Fields()
      .add("start_s", number(record.start_s))
      .add("kind", record.score ? "\"score\"" : "\"generate\"")
      .count("input_tokens", record.num_prompt_tokens)
      .count("output_tokens", record.num_tokens)
      .add("ttft_ms", record.num_tokens > 0 ? rounded_ms(record.ttft_s) : "null")
      .add("e2el_ms", rounded_ms(record.e2el_s))
      .add("outcome", quoted(record.outcome))
      .object();
}

std::string point_json(const BenchOptions& options, const SweepResult& result) {
  const SweepPoint& point = result.point;
  const LoadStats& stats = result.stats;
  Fields fields;
  fields.add("max_concurrency",
             point.max_concurrency ? std::to_string(*point.max_concurrency) : "null");
  fields.add("request_rate",
             point.load.arrivals_s.empty() ? number(point.load.request_rate) : "\"trace\"");
  fields.add("num_prompts", count_or_null(point.load.num_requests));
  fields.add("seed", std::to_string(point.load.workload->seed));
  fields.add("duration", number(stats.duration_s));
  fields.add("interrupted", boolean(stats.interrupted));
  fields.count("completed", stats.num_completed).count("failed", stats.num_failed);
  fields.count("stopped_early", stats.num_stopped).count("unfinished", stats.num_unfinished);
  fields.count("programs_started", stats.num_programs);
  fields.count("programs_completed", stats.num_programs_done);
  fields.count("programs_not_sent", stats.num_not_sent);
  fields.count("stray_tokens", stats.num_stray);
  fields.count("max_concurrent_requests", stats.peak_requests);
  fields.count("max_concurrent_programs", stats.peak_programs);
  Fields errors;
  for (const auto& [text, count] : stats.errors) errors.count(text, count);
  fields.add("errors", errors.object());
  fields.count("total_input_tokens", stats.num_prompt_tokens);
  fields.count("total_output_tokens", stats.num_tokens);
  fields.add("request_throughput", number(per_second(stats.num_completed, stats)));
  fields.add("output_throughput", number(per_second(stats.num_tokens, stats)));
  fields.add("total_token_throughput",
             number(per_second(stats.num_tokens + stats.num_prompt_tokens, stats)));
  for (const Metric metric : options.metrics) {
    add_times(options, metric_key(metric), times_of(stats, metric), fields);
  }
  add_times(options, "program", stats.program, fields);
  add_times(options, "start_lag", stats.lag, fields);
  if (options.load.keep_records) {
    fields.add("requests", array(stats.records, ",\n", request_json));
  }
  return fields.object();
}

std::string pattern_json(LmqlPattern pattern) {
  if (pattern == LmqlPattern::kChunks) return "\"chunks\"";
  return pattern == LmqlPattern::kBeams ? "\"beams\"" : "\"scores\"";
}

void add_load_options(const BenchOptions& options, const LoadOptions& first, Fields& fields) {
  const LoadOptions& load = options.load;
  fields.count("connections", load.num_connections);
  fields.count("vocab_size", first.workload->vocab_size);
  fields.add("timeout", number(load.timeout_ms / 1e3));
  fields.add("max_concurrency", array(options.max_concurrencies, ", ",
                                      [](int count) { return std::to_string(count); }));
  fields.add("request_rate", array(options.request_rates, ", ", number));
  fields.add("burstiness", number(load.burstiness));
  fields.add("num_prompts", count_or_null(load.num_requests));
  fields.add("duration", load.duration_s > 0 ? number(load.duration_s) : "null");
  fields.count("num_warmups", num_warmups(options, first));
  fields.add("seed", std::to_string(options.workload.seed));
}

void add_request_options(const BenchOptions& options, const LoadOptions& first, Fields& fields) {
  const WorkloadOptions& work = options.workload;
  fields.add("dataset_name", quoted(options.dataset_name));
  fields.count("random_input_len", work.input_len).count("random_output_len", work.output_len);
  fields.add("random_range_ratio", number(work.range_ratio));
  fields.count("prefix_len", work.prefix_len).count("num_prefix_groups", work.num_prefix_groups);
  fields.add("prompt", ids_json(work.prompt));
  fields.add("score", boolean(work.score));
  fields.add("temperature", number(static_cast<double>(options.load.temperature)));
  fields.add("ignore_eos", boolean(options.ignore_eos));
  fields.add("ban_token", ids_json(first.banned_tokens));
}

void add_pattern_options(const BenchOptions& options, const ServerInfo& server,
                         const LoadOptions& first, Fields& fields) {
  const WorkloadOptions& work = options.workload;
  fields.add("dataset_path", options.dataset_path.empty() ? "null" : quoted(options.dataset_path));
  fields.add("use_trace_timestamps", boolean(options.use_trace_timestamps));
  fields.add("trace_speedup", number(options.trace_speedup));
  fields.count("trace_length_divisor", work.trace_length_divisor);
  fields.add("max_model_len", count_or_null(trace_length_max(options, server)));
  fields.add("lmql_pattern", array(work.lmql, ", ", pattern_json));
  fields.count("lmql_mask_size", static_cast<std::int64_t>(first.mask.size()));
  fields.count("lmql_beams", work.lmql_beams).count("lmql_scores", work.lmql_scores);
  fields.count("lmql_score_len", work.lmql_score_len);
}

std::string options_json(const BenchOptions& options, const ServerInfo& server,
                         const LoadOptions& first) {
  Fields fields;
  add_load_options(options, first, fields);
  add_request_options(options, first, fields);
  add_pattern_options(options, server, first, fields);
  fields.add("percentile_metrics", array(options.metrics, ", ",
                                         [](Metric metric) { return quoted(metric_key(metric)); }));
  fields.add("metric_percentiles", array(options.percentiles, ", ", number));
  fields.add("save_detailed", boolean(options.load.keep_records));
  return fields.object();
}

}  // namespace

std::string report_json(const BenchOptions& options, const ServerInfo& server,
                        const std::string& date, const std::vector<SweepResult>& results) {
  const std::string endpoint = options.load.host + ":" + std::to_string(options.load.port);
  return Fields()
             .add("program", quoted("lmtp-bench " + std::string(kVersion)))
             .add("date", quoted(date))
             .add("endpoint", quoted(endpoint))
             .add("model", quoted(options.load.model))
             .add("model_info", server.json.empty() ? "null" : server.json)
             .add("options", options_json(options, server, results.front().point.load))
             .add("points",
                  array(results, ",\n",
                        [&options](const SweepResult& r) { return point_json(options, r); }))
             .object() +
         "\n";
}

}  // namespace lmtp::tools

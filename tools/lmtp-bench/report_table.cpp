#include "report_table.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "metric.h"

namespace lmtp::tools {
namespace {

constexpr int kErrorColumnsMax = 300;  // of an error's text

[[gnu::format(printf, 2, 3)]] void append(std::string& out, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  out.append(line, std::min(static_cast<std::size_t>(std::max(0, length)), sizeof(line) - 1));
}

// Removes control characters: a server's text must not control the terminal.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20U || c == 0x7F) c = ' ';
  }
  return text;
}

void append_counts(const SweepResult& result, bool of_programs, std::string& out) {
  const LoadStats& stats = result.stats;
  const auto number = [](std::int64_t count) { return static_cast<long long>(count); };
  append(out, "  completed %lld, failed %lld", number(stats.num_completed),
         number(stats.num_failed));
  for (const auto& [count, name] : {std::pair{stats.num_stopped, "of them stopped early"},
                                    std::pair{stats.num_unfinished, "cut off at the end"},
                                    std::pair{stats.num_not_sent, "not sent"},
                                    std::pair{stats.num_stray, "tokens of no request"}}) {
    if (count > 0) append(out, ", %s %lld", name, number(count));
  }
  append(out, ", most at a time %lld", number(stats.peak_requests));
  if (of_programs) append(out, " of %lld programs", number(stats.peak_programs));
  out.push_back('\n');
  append(out, "  requests/s %.2f, output tokens/s %.1f, prompt and output tokens/s %.1f\n",
         per_second(stats.num_completed, stats), per_second(stats.num_tokens, stats),
         per_second(stats.num_tokens + stats.num_prompt_tokens, stats));
}

void append_times(const std::string& name, const TimeHistogram& times,
                  const std::vector<double>& percentiles, std::string& out) {
  if (times.count() == 0) {
    append(out, "  %-12s %10s\n", name.c_str(), "-");
    return;
  }
  append(out, "  %-12s %10.2f", name.c_str(), times.mean_s() * 1e3);
  for (const double percentile : percentiles) {
    append(out, " %10.2f", times.quantile_s(percentile / 100) * 1e3);
  }
  append(out, " %10.2f\n", times.max_s() * 1e3);
}

}  // namespace

std::string header_text(const BenchOptions& options) {
  const WorkloadOptions& work = options.workload;
  std::string out;
  append(out, "%s%s%s:%d, %s", options.load.model.c_str(), options.load.model.empty() ? "" : " at ",
         options.load.host.c_str(), options.load.port,
         options.dataset_name == "lmql" ? "lmql programs" : options.dataset_name.c_str());
  if (options.dataset_name == "trace") {
    append(out, " %s", options.dataset_path.c_str());
    if (work.trace_length_divisor > 1) append(out, ", lengths / %d", work.trace_length_divisor);
  } else {
    const int input_len =
        work.prompt.empty() ? work.input_len : static_cast<int>(work.prompt.size());
    append(out, ": %d tokens in, %d %s", input_len, work.output_len, work.score ? "scored" : "out");
    if (work.range_ratio > 0) append(out, ", +- %g %%", work.range_ratio * 100);
    if (work.prefix_len > 0) {
      append(out, ", behind %d shared by each of %d groups", work.prefix_len,
             work.num_prefix_groups);
    }
  }
  return out + "\n";
}

std::string point_text(const BenchOptions& options, const SweepResult& result) {
  const LoadStats& stats = result.stats;
  std::string out;
  append(out, "%s: %.2f s%s\n", describe(result.point).c_str(), stats.duration_s,
         stats.interrupted ? ", interrupted" : "");
  append_counts(result, !options.workload.lmql.empty(), out);
  append(out, "  %-12s %10s", "ms", "mean");
  for (const double percentile : options.percentiles) {
    append(out, " %10s", percentile_name(percentile).c_str());
  }
  append(out, " %10s\n", "max");
  for (const Metric metric : options.metrics) {
    append_times(metric_title(metric), times_of(stats, metric), options.percentiles, out);
  }
  if (!options.workload.lmql.empty()) {
    append_times(std::to_string(stats.num_programs_done) + " programs", stats.program,
                 options.percentiles, out);
  }
  if (stats.lag.count() > 0) append_times("start lag", stats.lag, options.percentiles, out);
  for (const auto& [text, count] : stats.errors) {
    append(out, "  error x %lld: %.*s\n", static_cast<long long>(count), kErrorColumnsMax,
           printable(text).c_str());
  }
  return out;
}

std::string sweep_text(const std::vector<SweepResult>& results) {
  std::size_t width = 0;
  for (const SweepResult& result : results) width = std::max(width, describe(result.point).size());
  const int columns = static_cast<int>(width);
  std::string out;
  append(out, "%-*s %7s %6s %9s %10s", columns, "", "done", "failed", "req/s", "out tok/s");
  for (const char* name : {"TTFT", "TPOT", "ITL", "E2EL"}) append(out, " %5s p50 %9s", name, "p99");
  out.push_back('\n');
  for (const SweepResult& result : results) {
    const LoadStats& stats = result.stats;
    append(out, "%-*s %7lld %6lld %9.2f %10.1f", columns, describe(result.point).c_str(),
           static_cast<long long>(stats.num_completed), static_cast<long long>(stats.num_failed),
           per_second(stats.num_completed, stats), per_second(stats.num_tokens, stats));
    for (const Metric metric : {Metric::kTtft, Metric::kTpot, Metric::kItl, Metric::kE2el}) {
      const TimeHistogram& times = times_of(stats, metric);
      append(out, " %9.2f %9.2f", times.quantile_s(0.5) * 1e3, times.quantile_s(0.99) * 1e3);
    }
    out.push_back('\n');
  }
  return out;
}

}  // namespace lmtp::tools

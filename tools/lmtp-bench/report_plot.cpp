#include "report_plot.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "chart.h"
#include "metric.h"

namespace lmtp::tools {
namespace {

// The results of one line of the plot, by x.
using Line = std::map<double, const LoadStats*>;

struct Lines {
  std::vector<std::pair<std::string, Line>> named;
  std::string x_label;
  std::vector<std::pair<double, std::string>> x_names;
};

Lines lines_of(const std::vector<SweepResult>& results) {
  const auto has_rate = [](const SweepResult& r) { return r.point.request_rate.has_value(); };
  const bool rates = std::any_of(results.begin(), results.end(), has_rate);
  double highest = 0;
  for (const SweepResult& result : results) {
    const double rate = result.point.request_rate.value_or(0);
    if (std::isfinite(rate)) highest = std::max(highest, rate);
  }
  // An unlimited rate is drawn at twice the highest finite one.
  const double unlimited = highest > 0 ? 2 * highest : 1;
  Lines lines;
  lines.x_label = rates ? "requests per second, asked for" : "requests at a time";
  if (rates) lines.x_names.emplace_back(unlimited, "inf");
  for (const SweepResult& result : results) {
    const SweepPoint& point = result.point;
    const auto concurrency = static_cast<double>(point.load.max_concurrency);
    const double rate = point.request_rate.value_or(unlimited);
    std::string name;
    if (rates && point.max_concurrency) name = "max " + std::to_string(*point.max_concurrency);
    const auto same = [&name](const auto& line) { return line.first == name; };
    auto found = std::find_if(lines.named.begin(), lines.named.end(), same);
    if (found == lines.named.end()) found = lines.named.insert(found, {name, {}});
    found->second[!rates ? concurrency : std::isinf(rate) ? unlimited : rate] = &result.stats;
  }
  const bool uses_unlimited = std::any_of(results.begin(), results.end(), [](const SweepResult& r) {
    return r.point.request_rate && std::isinf(*r.point.request_rate);
  });
  if (!uses_unlimited) lines.x_names.clear();
  return lines;
}

template <typename Value>
Series series_of(const std::string& name, const Line& line, std::size_t color, bool dashed,
                 Value value) {
  Series series{name, {}, static_cast<int>(color), dashed};
  for (const auto& [x, stats] : line) series.points.emplace_back(x, value(*stats));
  return series;
}

std::string joined(const std::string& first, const std::string& second) {
  return first.empty() ? second : first + ", " + second;
}

Chart throughput_chart(const Lines& lines) {
  Chart chart{"Throughput", lines.x_label, "output tokens per second", {}, lines.x_names};
  for (std::size_t i = 0; i < lines.named.size(); ++i) {
    const auto& [name, line] = lines.named[i];
    chart.series.push_back(
        series_of(name.empty() ? "output tokens/s" : name, line, i, false,
                  [](const LoadStats& stats) { return per_second(stats.num_tokens, stats); }));
  }
  return chart;
}

Chart latency_chart(const Lines& lines, const std::string& title, Metric metric) {
  Chart chart{title, lines.x_label, "milliseconds", {}, lines.x_names};
  for (std::size_t i = 0; i < lines.named.size(); ++i) {
    for (const double percentile : {50.0, 99.0}) {
      const auto& [name, line] = lines.named[i];
      chart.series.push_back(
          series_of(joined(name, percentile_name(percentile)), line, i, percentile == 99.0,
                    [metric, percentile](const LoadStats& stats) {
                      return times_of(stats, metric).quantile_s(percentile / 100) * 1e3;
                    }));
    }
  }
  return chart;
}

}  // namespace

std::string sweep_svg(const std::string& heading, const std::vector<SweepResult>& results) {
  const Lines lines = lines_of(results);
  return charts_svg(
      heading, {throughput_chart(lines), latency_chart(lines, "Time to first token", Metric::kTtft),
                latency_chart(lines, "Inter-token latency", Metric::kItl)});
}

}  // namespace lmtp::tools

// The one table of what an engine counts. MODEL_INFO's "stats", GET /metrics and the table in
// docs/metrics.md are printed from it or checked against it. lmtp_requests_refused_total is not in
// it: rows are numbers of one engine, and refused requests have none (server/http/metrics.cpp).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmtp/engine/engine.h"
#include "lmtp/engine/engine_metrics.h"

namespace lmtp::engine {

enum class MetricType { kCounter, kGauge, kHistogram };

// "counter", "gauge", "histogram".
std::string_view type_name(MetricType type);

struct MetricRow {
  std::string_view field = {};  // in MODEL_INFO's "stats"; empty: not there
  std::string_view name = {};   // of the metric, without the prefix; empty: others' name alone
  // What vLLM and TGI call it, in full; empty: they have none, or count it in another way.
  std::string_view vllm = {};
  std::string_view tgi = {};
  MetricType type = MetricType::kCounter;
  std::string_view help;

  // One of the three. Whole numbers but for gauges without a field.
  double (*value)(const EngineStats&) = nullptr;
  Histogram EngineMetrics::*histogram = nullptr;
  double (*by_label)(const EngineStats&, std::size_t at) = nullptr;  // of label_values[at]

  double unit = 1.0;  // of `value`, in what the metric shows
  std::string_view label = {};
  std::span<const std::string_view> label_values = {};  // an empty one is left out
  // More labels of `value`.
  std::vector<std::pair<std::string, std::string>> (*info)(const EngineStats&) = nullptr;
  // What ended before an engine had it is in it too, in a series without a model.
  bool has_refused = false;
};

// What the name of each of our own metrics begins with. Not a colon as in vLLM's "vllm:":
// Prometheus reserves colons for the names of recording rules.
inline constexpr std::string_view kMetricPrefix = "lmtp_";

// In MODEL_INFO's order.
std::span<const MetricRow> metric_table();

}  // namespace lmtp::engine

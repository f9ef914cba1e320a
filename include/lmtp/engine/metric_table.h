// The one table of what an engine counts. MODEL_INFO's "stats", GET /metrics and the table in
// docs/metrics.md are printed from it or checked against it. lmtp_requests_refused_total is not in
// it: rows are numbers of one engine, and refused requests have none (server/http/metrics.cpp).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "lmtp/engine/engine.h"
#include "lmtp/engine/engine_metrics.h"

namespace lmtp::engine {

enum class MetricType { kCounter, kGauge, kHistogram };

// "counter", "gauge", "histogram".
std::string_view type_name(MetricType type);

struct MetricRow {
  std::string_view field = {};  // in MODEL_INFO's "stats"; empty: not there
  std::string_view name;        // of the metric, without the prefix
  MetricType type = MetricType::kCounter;
  std::string_view help;

  // One of the three. Whole numbers but for gauges without a field.
  double (*value)(const EngineStats&) = nullptr;
  Histogram EngineMetrics::*histogram = nullptr;
  double (*by_label)(const EngineStats&, std::size_t at) = nullptr;  // of label_values[at]

  double unit = 1.0;  // of `value`, in what the metric shows
  std::string_view label = {};
  std::span<const std::string_view> label_values = {};  // an empty one is left out
};

// What every metric's name begins with. Not a colon as in vLLM's "vllm:": Prometheus reserves
// colons for the names of recording rules.
inline constexpr std::string_view kMetricPrefix = "lmtp_";

// In MODEL_INFO's order.
std::span<const MetricRow> metric_table();

}  // namespace lmtp::engine

#include "metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "context.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"
#include "lmtp/engine/metric_table.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::server {
namespace {

using engine::MetricRow;
using prometheus::ClientMetric;
using prometheus::MetricFamily;

// As UTF-8, which names of folders need not be, and without control characters.
std::string label_text(std::string_view name) {
  std::string text;
  append_valid_utf8(name, text);
  text.resize(utf8_prefix(text, kNameBytesMax).size());
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

struct Series {
  std::string model_name;
  const engine::EngineStats* stats;
};

// Two models never have the same label, or Prometheus would refuse the whole answer.
std::vector<Series> series_of(const std::vector<registry::ModelStatus>& models) {
  std::vector<Series> all;
  for (const registry::ModelStatus& model : models) {
    const bool has_been_ready = model.stats.agent.num_blocks > 0 || model.stats.num_steps > 0;
    if (!has_been_ready) continue;
    const std::string name = label_text(model.description.name);
    std::string unique = name;
    const auto is_taken = [&](const Series& other) { return other.model_name == unique; };
    for (int n = 2; std::ranges::any_of(all, is_taken); ++n) {
      unique = name + " (" + std::to_string(n) + ")";
    }
    all.push_back({std::move(unique), &model.stats});
  }
  return all;
}

prometheus::MetricType type_of(engine::MetricType type) {
  switch (type) {
    case engine::MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case engine::MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case engine::MetricType::kHistogram:
      break;
  }
  return prometheus::MetricType::Histogram;
}

MetricFamily family_of(const MetricRow& row, std::string name) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = row.help;
  family.type = type_of(row.type);
  return family;
}

void set_value(ClientMetric& metric, engine::MetricType type, double value) {
  (type == engine::MetricType::kCounter ? metric.counter.value : metric.gauge.value) = value;
}

ClientMetric::Histogram histogram_of(const Histogram& histogram) {
  ClientMetric::Histogram out;
  const Buckets& buckets = histogram.buckets();
  for (std::size_t i = 0; i < buckets.num_bounds; ++i) {
    out.sample_count += histogram.count(i);
    out.bucket.push_back({out.sample_count, static_cast<double>(buckets.upper[i]) * buckets.unit});
  }
  out.sample_count += histogram.count(buckets.num_bounds);
  out.sample_sum = histogram.sum();
  return out;
}

// `labels`: those that all of this name have.
void add_series(const MetricRow& row, const Series& series,
                const std::vector<ClientMetric::Label>& labels, MetricFamily& family) {
  ClientMetric metric;
  if (!series.model_name.empty()) metric.label.push_back({"model_name", series.model_name});
  metric.label.insert(metric.label.end(), labels.begin(), labels.end());
  if (row.histogram != nullptr) {
    metric.histogram = histogram_of(series.stats->metrics.*row.histogram);
  } else if (row.value != nullptr) {
    set_value(metric, row.type, row.value(*series.stats) * row.unit);
    if (row.info != nullptr) {
      for (auto& [label, value] : row.info(*series.stats)) metric.label.push_back({label, value});
    }
  } else {
    metric.label.push_back({std::string(row.label), ""});
    for (std::size_t i = 0; i < row.label_values.size(); ++i) {
      if (row.label_values[i].empty()) continue;
      metric.label.back().value = row.label_values[i];
      set_value(metric, row.type, row.by_label(*series.stats, i));
      family.metric.push_back(metric);
    }
    return;
  }
  family.metric.push_back(std::move(metric));
}

MetricFamily refused_family(const registry::RefusalCounts& refusals) {
  MetricFamily family;
  family.name = std::string(engine::kMetricPrefix) + "requests_refused_total";
  family.help = "Requests that ended with an error before an engine had them, by cause.";
  family.type = prometheus::MetricType::Counter;
  for (std::size_t i = 0; i < engine::kNumErrorCodes; ++i) {
    const auto cause = static_cast<ErrorCode>(i);
    ClientMetric& metric = family.metric.emplace_back();
    metric.label.push_back({"cause", std::string(error_kind(cause).name)});
    metric.counter.value = static_cast<double>(refusals.count(cause));
  }
  return family;
}

MetricFamily wakeups_family(std::int64_t num_wakeups) {
  MetricFamily family;
  family.name = std::string(engine::kMetricPrefix) + "wakeups_total";
  family.help = "Posts by engines to the threads of the connections, one a step at most.";
  family.type = prometheus::MetricType::Counter;
  family.metric.emplace_back().counter.value = static_cast<double>(num_wakeups);
  return family;
}

}  // namespace

std::string metrics_text(const std::vector<registry::ModelStatus>& models,
                         const registry::RefusalCounts& refusals, const MetricsAliases& aliases,
                         std::int64_t num_wakeups) {
  const std::vector<Series> all = series_of(models);
  engine::EngineStats refused;
  for (std::size_t i = 0; i < engine::kNumErrorCodes; ++i) {
    refused.metrics.num_failed[i].add(refusals.count(static_cast<ErrorCode>(i)));
  }
  std::vector<MetricFamily> families;
  const auto add = [&](const MetricRow& row, std::string name,
                       const std::vector<ClientMetric::Label>& labels) {
    MetricFamily& family = families.emplace_back(family_of(row, std::move(name)));
    for (const Series& series : all) add_series(row, series, labels, family);
    if (row.has_refused) add_series(row, {"", &refused}, labels, family);
  };
  for (const MetricRow& row : engine::metric_table()) {
    if (!row.name.empty()) add(row, std::string(engine::kMetricPrefix).append(row.name), {});
  }
  families.push_back(refused_family(refusals));
  families.push_back(wakeups_family(num_wakeups));
  for (const MetricRow& row : engine::metric_table()) {
    if (aliases.vllm && !row.vllm.empty()) add(row, std::string(row.vllm), {{"engine", "0"}});
    if (aliases.tgi && !row.tgi.empty()) add(row, std::string(row.tgi), {});
  }
  return prometheus::TextSerializer().Serialize(families);
}

void answer_metrics(ServerContext& context, HttpRequest& /*http*/, const ResponderPtr& responder) {
  const registry::Models& models = context.generation.models.for_admins();
  responder->send({200, "text/plain; version=0.0.4; charset=utf-8",
                   metrics_text(models.list(), models.refusals(), context.options.metrics_aliases,
                                context.mailroom.num_wakeups())});
}

}  // namespace lmtp::server

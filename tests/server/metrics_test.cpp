// GET /metrics, as text.
#include "http/metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "lmtp/engine/metric_table.h"

namespace lmtp::server {
namespace {

registry::ModelStatus status_of(const std::string& name) {
  registry::ModelStatus status;
  status.state = registry::ModelState::kReady;
  status.description.name = name;
  status.stats.agent.num_blocks = 5;
  return status;
}

// Each sample's value by its name with labels; fails where one is there twice.
std::map<std::string, double> samples_of(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t space = line.rfind(' ');
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
        << line;
  }
  return samples;
}

TEST(MetricsText, ShowsCountersGaugesAndHistogramsOfAModel) {
  registry::ModelStatus status = status_of("demo");
  status.stats.num_generated_tokens = 12;
  status.stats.busy_us = 2'500'000;
  status.stats.num_blocks_pinned = 1;
  status.stats.metrics.num_finished[static_cast<std::size_t>(FinishReason::kStop)].add(3);
  status.stats.metrics.num_failed[static_cast<std::size_t>(ErrorCode::kCancelled)].add(2);
  for (const std::int64_t ns : {90'000, 100'000, 2'000'000}) {
    status.stats.metrics.time_to_first_token.add(ns);
  }
  status.stats.metrics.time_to_first_token.add(std::int64_t{5'000} * 1'000'000'000);
  const auto samples = samples_of(metrics_text({status}, {}));
  const auto value = [&](const std::string& name) {
    const auto found = samples.find(name);
    return found == samples.end() ? -1.0 : found->second;
  };
  EXPECT_EQ(value("lmtp_generation_tokens_total{model_name=\"demo\"}"), 12);
  EXPECT_EQ(value("lmtp_busy_seconds_total{model_name=\"demo\"}"), 2.5);
  EXPECT_EQ(value("lmtp_kv_cache_usage_perc{model_name=\"demo\"}"), 0.25);
  EXPECT_EQ(value("lmtp_request_success_total{model_name=\"demo\",finished_reason=\"stop\"}"), 3);
  EXPECT_EQ(value("lmtp_request_success_total{model_name=\"demo\",finished_reason=\"length\"}"), 0);
  EXPECT_EQ(value("lmtp_request_failure_total{model_name=\"demo\",cause=\"cancelled\"}"), 2);
  EXPECT_EQ(value("lmtp_time_to_first_token_seconds_count{model_name=\"demo\"}"), 4);
  EXPECT_DOUBLE_EQ(value("lmtp_time_to_first_token_seconds_sum{model_name=\"demo\"}"), 5000.00219);
  std::map<double, double> cumulative;
  for (const auto& [name, count] : samples) {
    const std::string head = "lmtp_time_to_first_token_seconds_bucket{model_name=\"demo\",le=\"";
    if (name.starts_with(head)) cumulative[std::stod(name.substr(head.size()))] = count;
  }
  ASSERT_EQ(cumulative.size(), engine::kTimeBuckets.num_bounds + 1);
  EXPECT_EQ(cumulative[0.0001], 2);
  EXPECT_EQ(cumulative[0.001], 2);
  EXPECT_EQ(cumulative[0.0025], 3);
  EXPECT_EQ(cumulative[1000], 3);
  EXPECT_EQ(cumulative.rbegin()->second, 4);
}

TEST(MetricsText, SaysTheSameUnderTheNamesOfOthers) {
  registry::ModelStatus status = status_of("demo");
  status.stats.num_waiting = 4;
  status.stats.agent.num_host_blocks = 7;
  status.stats.metrics.num_finished[static_cast<std::size_t>(FinishReason::kLength)].add(3);
  status.stats.metrics.num_failed[static_cast<std::size_t>(ErrorCode::kCancelled)].add(2);
  status.stats.metrics.num_failed[static_cast<std::size_t>(ErrorCode::kInternal)].add(1);
  status.stats.metrics.time_to_first_token.add(5);
  registry::RefusalCounts refusals;
  refusals.add(ErrorCode::kTooLong);
  const auto samples = samples_of(metrics_text({status}, refusals, {}));
  const std::string vllm = "{model_name=\"demo\",engine=\"0\"";
  EXPECT_EQ(samples.at("vllm:num_requests_waiting" + vllm + "}"), 4);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_count" + vllm + "}"), 1);
  const auto ended = [&](const std::string& reason) {
    return samples.at("vllm:request_success_total" + vllm + ",finished_reason=\"" + reason + "\"}");
  };
  EXPECT_EQ(ended("length"), 3);
  EXPECT_EQ(ended("abort"), 3);
  EXPECT_EQ(samples.at("vllm:cache_config_info" + vllm +
                       ",block_size=\"16\",num_gpu_blocks=\"5\",num_cpu_blocks=\"7\","
                       "enable_prefix_caching=\"True\"}"),
            1);
  EXPECT_GT(samples.at("vllm:lora_requests_info" + vllm +
                       ",max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"}"),
            1e9);
  EXPECT_EQ(samples.at("tgi_queue_size{model_name=\"demo\"}"), 4);
  EXPECT_EQ(samples.at("tgi_request_count{model_name=\"demo\"}"), 6);
  EXPECT_EQ(samples.at("tgi_request_success{model_name=\"demo\"}"), 3);
  EXPECT_EQ(samples.at("tgi_request_failure{model_name=\"demo\",err=\"dropped\"}"), 2);
  EXPECT_EQ(samples.at("tgi_request_failure{model_name=\"demo\",err=\"generation\"}"), 1);
  // Before an engine had it.
  EXPECT_EQ(samples.at("tgi_request_count"), 1);
  EXPECT_EQ(samples.at("tgi_request_failure{err=\"validation\"}"), 1);

  const auto has = [&](const MetricsAliases& aliases, const char* prefix) {
    return metrics_text({status}, refusals, aliases).find(prefix) != std::string::npos;
  };
  EXPECT_TRUE(has({}, "\nvllm:") && has({}, "\ntgi_"));
  EXPECT_FALSE(has({.vllm = false}, "vllm:") || has({.tgi = false}, "tgi_"));
}

TEST(MetricsText, EachFamilyHasItsHelpAndTypeOnce) {
  const std::string text = metrics_text({status_of("a"), status_of("b")}, {});
  for (const engine::MetricRow& row : engine::metric_table()) {
    if (row.name.empty()) continue;
    const std::string name = std::string(engine::kMetricPrefix) + std::string(row.name);
    const std::string head = "# HELP " + name + " " + std::string(row.help) + "\n# TYPE " + name +
                             " " + std::string(engine::type_name(row.type)) + "\n";
    const std::size_t at = text.find(head);
    ASSERT_NE(at, std::string::npos) << head;
    EXPECT_EQ(text.find("# TYPE " + name + " ", at + head.size()), std::string::npos) << name;
  }
}

TEST(MetricsText, AModelWithoutAnEngineHasNoSeries) {
  registry::ModelStatus loading = status_of("asked-for-by-a-stranger");
  loading.stats.agent = {};
  EXPECT_EQ(metrics_text({loading}, {}).find("stranger"), std::string::npos);
}

TEST(MetricsText, RefusalsAreTheServersByCause) {
  registry::RefusalCounts refusals;
  refusals.add(ErrorCode::kInvalid);
  refusals.add(ErrorCode::kNotFound);
  refusals.add(ErrorCode::kNotFound);
  const auto samples = samples_of(metrics_text({}, refusals, {.vllm = false, .tgi = false}, 7));
  EXPECT_EQ(samples.size(), engine::kNumErrorCodes + 1);
  EXPECT_EQ(samples.at("lmtp_wakeups_total"), 7);
  EXPECT_EQ(samples.at("lmtp_requests_refused_total{cause=\"invalid\"}"), 1);
  EXPECT_EQ(samples.at("lmtp_requests_refused_total{cause=\"not_found\"}"), 2);
  EXPECT_EQ(samples.at("lmtp_requests_refused_total{cause=\"internal\"}"), 0);
}

// Names are strangers': neither a line of their own, nor two models under one label.
TEST(MetricsText, NamesAreEscapedCutAndToldApart) {
  const std::string text =
      metrics_text({status_of("a\"b\\c\nlmtp_steps_total 7\x01"), status_of(std::string(1000, 'x')),
                    status_of(std::string(999, 'x')), status_of("caf\xC3\xA9 \xFF")},
                   {});
  samples_of(text);
  for (const std::string& label :
       {std::string("model_name=\"a\\\"b\\\\c?lmtp_steps_total 7?\""),
        "\"" + std::string(128, 'x') + "\"", "\"" + std::string(128, 'x') + " (2)\"",
        std::string("\"caf\xC3\xA9 \xEF\xBF\xBD\"")}) {
    EXPECT_NE(text.find(label), std::string::npos) << label;
  }
}

}  // namespace
}  // namespace lmtp::server

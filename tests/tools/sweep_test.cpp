// From a command line to loads: points, numbers of requests, seeds, traces.
#include "lmtp-bench/sweep.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lmtp-bench/report_json.h"
#include "lmtp-bench/report_plot.h"
#include "lmtp-bench/report_table.h"
#include "support/temp_folder.h"

namespace lmtp::tools {
namespace {

constexpr double kInf = kUnlimitedRate;

ServerInfo server() {
  return {.vocab_size = 1000,
          .context_length = 512,
          .eos_token_ids = {0, 5},
          .json = "{\"model\": \"m\"}"};
}

Sweep plan(const BenchOptions& options) {
  auto sweep = plan_sweep(options, server());
  EXPECT_TRUE(sweep.ok()) << sweep.error().message;
  return std::move(sweep).value();
}

std::string error_of(const BenchOptions& options, const ServerInfo& info) {
  const auto sweep = plan_sweep(options, info);
  return sweep ? "planned" : sweep.error().message;
}

TEST(Sweep, AClosedLoopOfEightIsTheDefault) {
  const Sweep sweep = plan({});
  ASSERT_EQ(sweep.points.size(), 1U);
  const LoadOptions& load = sweep.points[0].load;
  EXPECT_EQ(load.max_concurrency, 8);
  EXPECT_EQ(load.request_rate, kInf);
  EXPECT_EQ(load.num_requests, 32);
  EXPECT_EQ(load.workload->vocab_size, 1000);
  ASSERT_TRUE(sweep.warmup.has_value());
  EXPECT_EQ(sweep.warmup->num_requests, 8);
  EXPECT_NE(sweep.warmup->workload->seed, load.workload->seed);
}

TEST(Sweep, IsTheProductOfItsLists) {
  BenchOptions options;
  options.max_concurrencies = {2, 16};
  options.request_rates = {0.5, 4, kInf};
  options.num_warmups = 0;
  const Sweep sweep = plan(options);
  EXPECT_FALSE(sweep.warmup.has_value());
  ASSERT_EQ(sweep.points.size(), 6U);
  std::set<std::uint64_t> seeds;
  for (const SweepPoint& point : sweep.points) seeds.insert(point.load.workload->seed);
  EXPECT_EQ(seeds.size(), 6U);
  EXPECT_EQ(describe(sweep.points[0]), "0.5/s, concurrency 2 at most");
  EXPECT_EQ(describe(sweep.points[5]), "all at once, concurrency 16 at most");
  EXPECT_EQ(sweep.points[0].load.num_requests, 16);  // of a low rate, so many at least
  EXPECT_EQ(sweep.points[2].load.num_requests, 40);  // 10 s of it
}

TEST(Sweep, ARateAloneHasNoLimit) {
  BenchOptions options;
  options.request_rates = {4, kInf};
  const Sweep sweep = plan(options);
  EXPECT_EQ(sweep.points[0].load.max_concurrency, kConcurrencyMax);
  EXPECT_EQ(sweep.points[1].load.max_concurrency, 64);  // all there are
  EXPECT_EQ(sweep.points[1].load.num_requests, 64);
  EXPECT_EQ(describe(sweep.points[0]), "4/s");
}

TEST(Sweep, TheServersEndTokensAreBanned) {
  BenchOptions options;
  options.ignore_eos = true;
  options.banned_tokens = {5, 3};
  EXPECT_EQ(plan(options).points[0].load.banned_tokens, (std::vector<TokenId>{0, 3, 5}));
  options.banned_tokens.clear();
  EXPECT_NE(error_of(options, {.vocab_size = 1000, .context_length = 512}).find("--ban-token"),
            std::string::npos);
}

TEST(Sweep, NamesTheOptionThatHelpsWithAServerThatSaysNothing) {
  EXPECT_NE(error_of({}, {}).find("--vocab-size"), std::string::npos);
  BenchOptions options;
  options.workload.vocab_size = 7;
  EXPECT_EQ(error_of(options, {}), "planned");
}

TEST(Sweep, HalfTheVocabularyIsMasked) {
  BenchOptions options;
  options.workload.lmql = {LmqlPattern::kChunks};
  EXPECT_EQ(plan(options).points[0].load.mask.size(), 500U);
  options.lmql_mask_size = 10;
  EXPECT_EQ(plan(options).points[0].load.mask.size(), 10U);
  options.lmql_mask_size = 1000;
  EXPECT_NE(error_of(options, server()).find("--lmql-mask-size"), std::string::npos);
}

TEST(Sweep, ATraceGivesTimesAndTellsWhatDoesNotFit) {
  const lmtp::testing::TempFolder folder;
  folder.write("trace.csv",
               "arrival_s,prompt_tokens,output_tokens\n0,100,10\n2,510,10\n4,200,20\n");
  BenchOptions options;
  options.dataset_name = "trace";
  options.dataset_path = folder.path() + "/trace.csv";
  options.use_trace_timestamps = true;
  options.trace_speedup = 4;
  const Sweep sweep = plan(options);
  EXPECT_EQ(sweep.note.rfind("1 of the trace's 3 rows left out: longer than 512 tokens", 0), 0U)
      << sweep.note;
  const LoadOptions& load = sweep.points[0].load;
  EXPECT_EQ(load.arrivals_s, (std::vector<double>{0, 1}));
  EXPECT_EQ(load.num_requests, 2);
  EXPECT_EQ(describe(sweep.points[0]), "trace times");
  EXPECT_TRUE(sweep.warmup->arrivals_s.empty());
  options.workload.trace_length_divisor = 2;
  EXPECT_TRUE(plan(options).note.empty());
  options.load.num_requests = 4;
  EXPECT_NE(error_of(options, server()).find("3 rows"), std::string::npos);
  options.max_model_len = 10;
  EXPECT_NE(error_of(options, server()).find("no row"), std::string::npos);
}

// ---- reports ----

std::vector<SweepResult> results(const BenchOptions& options) {
  std::vector<SweepResult> results;
  for (const SweepPoint& point : plan(options).points) {
    LoadStats stats;
    stats.num_completed = 2;
    stats.num_failed = 1;
    stats.num_tokens = 30;
    stats.num_prompt_tokens = 70;
    stats.duration_s = 2.0;
    stats.ttft.add(0.25);
    stats.itl.add(0.010, 28);
    stats.note_error("it said \"no\"");
    stats.records.push_back({0.5, 0.25, 0.4, 35, 15, false, "length"});
    results.push_back({point, stats});
  }
  return results;
}

TEST(Reports, ATableNamesCountsRatesTimesAndErrors) {
  BenchOptions options;
  options.max_concurrencies = {4, 16};
  const auto both = results(options);
  const std::string text = point_text(options, both[0]);
  for (const char* part :
       {"concurrency 4: 2.00 s", "completed 2, failed 1", "requests/s 1.00", "output tokens/s 15.0",
        "prompt and output tokens/s 50.0", "TTFT", "250.00", "p99", "error x 1: it said \"no\""}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  options.workload.lmql = {LmqlPattern::kBeams};
  EXPECT_NE(point_text(options, both[0]).find("0 programs"), std::string::npos);
  const std::string table = sweep_text(both);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
  EXPECT_NE(table.find("concurrency 16"), std::string::npos);
}

TEST(Reports, JsonCarriesTheFieldsNames) {
  BenchOptions options;
  options.request_rates = {kInf};
  options.percentiles = {50, 99.9};
  options.metrics = {Metric::kTtft};
  options.load.keep_records = true;
  const std::string json = report_json(options, server(), "2026-01-02T03:04:05Z", results(options));
  for (const char* part :
       {R"("date": "2026-01-02T03:04:05Z")", R"("model_info": {"model": "m"})",
        R"("request_rate": "inf")", R"("max_concurrency": null)", R"("completed": 2)",
        R"("errors": {"it said \"no\"": 1})", R"("output_throughput": 15)",
        R"("mean_ttft_ms": 250)", R"("p99.9_ttft_ms": 250)", R"("outcome": "length")",
        R"("total_input_tokens": 70)"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in\n" << json;
  }
  EXPECT_EQ(json.find("mean_tpot"), std::string::npos);
}

TEST(Reports, JsonHasTheOptionsAsTheyWereChosen) {
  BenchOptions options;
  options.dataset_name = "lmql";
  options.workload.lmql = {LmqlPattern::kChunks, LmqlPattern::kScores};
  options.workload.prompt = {4, 2};
  options.request_rates = {0.5, kInf};
  options.load.timeout_ms = 1500;
  options.ignore_eos = true;
  const std::string json = report_json(options, server(), "now", results(options));
  for (const char* part :
       {R"("vocab_size": 1000)", R"("timeout": 1.5)", R"("request_rate": [0.5, "inf"])",
        R"("max_concurrency": [])", R"("num_prompts": null, "duration": null, "num_warmups": 8)",
        R"("prompt": [4, 2])", R"("ban_token": [0, 5])", R"("max_model_len": 512)",
        R"("lmql_pattern": ["chunks", "scores"])", R"("lmql_mask_size": 500, "lmql_beams": 4)",
        R"("percentile_metrics": ["ttft", "tpot", "itl", "e2el"])",
        R"("metric_percentiles": [50, 90, 99])", R"("save_detailed": false)",
        R"("request_rate": 0.5, "num_prompts": 16)", R"("max_concurrent_programs": 0)"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << " in\n" << json;
  }
}

TEST(Reports, ThePlotHasALineForEachConcurrencyAndPercentile) {
  BenchOptions options;
  options.request_rates = {1, 2, kInf};
  options.max_concurrencies = {4, 16};
  const std::string svg = sweep_svg("a & b", results(options));
  EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
  EXPECT_NE(svg.find("a &amp; b"), std::string::npos);
  std::size_t num_lines = 0;
  for (std::size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1)) {
    ++num_lines;
  }
  EXPECT_EQ(num_lines, 2U + 4U + 4U);
  for (const char* part : {">inf<", ">max 4, p99<", ">max 16, p50<", "Inter-token latency"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace lmtp::tools

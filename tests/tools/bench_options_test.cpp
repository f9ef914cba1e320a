#include "load/bench_options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>
#include <vector>

namespace lmtp::tools {
namespace {

std::variant<BenchOptions, int> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "lmtp-bench");
  return parse_bench_options(static_cast<int>(arguments.size()), arguments.data());
}

BenchOptions parsed(const std::vector<const char*>& arguments) {
  auto result = parse(arguments);
  EXPECT_TRUE(std::holds_alternative<BenchOptions>(result));
  const auto* options = std::get_if<BenchOptions>(&result);
  return options ? *options : BenchOptions{};
}

std::string mistake(const std::vector<const char*>& arguments) {
  ::testing::internal::CaptureStderr();
  const auto result = parse(arguments);
  std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::get<int>(result), 2) << text;
  return text;
}

TEST(BenchOptions, ListsAreSweeps) {
  const BenchOptions options = parsed({"--max-concurrency", "1,8,64", "--request-rate", "0.5,4,inf",
                                       "demo", "--host", "there:9000"});
  EXPECT_EQ(options.load.model, "demo");
  EXPECT_EQ(options.load.host, "there");
  EXPECT_EQ(options.load.port, 9000);
  EXPECT_EQ(options.max_concurrencies, (std::vector<int>{1, 8, 64}));
  ASSERT_EQ(options.request_rates.size(), 3U);
  EXPECT_EQ(options.request_rates[0], 0.5);
  EXPECT_TRUE(std::isinf(options.request_rates[2]));
}

TEST(BenchOptions, TheFieldsNamesAndTheShorterOnes) {
  const BenchOptions field =
      parsed({"--random-input-len", "5", "--random-output-len", "6", "--num-prompts", "7",
              "--num-warmups", "1", "--dataset-name", "random", "--random-range-ratio", "0.5"});
  const BenchOptions ours =
      parsed({"--prompt-tokens", "5", "-n", "6", "--requests", "7", "--warmup", "1"});
  for (const BenchOptions& options : {field, ours}) {
    EXPECT_EQ(options.workload.input_len, 5);
    EXPECT_EQ(options.workload.output_len, 6);
    EXPECT_EQ(options.load.num_requests, 7);
    EXPECT_EQ(options.num_warmups, 1);
  }
  EXPECT_EQ(field.workload.range_ratio, 0.5);
}

TEST(BenchOptions, LmqlAndReport) {
  EXPECT_TRUE(parsed({}).workload.lmql.empty());
  EXPECT_EQ(parsed({"--dataset-name", "lmql"}).workload.lmql.size(), 3U);
  const BenchOptions options =
      parsed({"--dataset-name", "lmql", "--lmql-pattern", "scores,chunks", "--percentile-metrics",
              "itl,ttft", "--metric-percentiles", "95,99.9"});
  EXPECT_EQ(options.workload.lmql,
            (std::vector<LmqlPattern>{LmqlPattern::kScores, LmqlPattern::kChunks}));
  EXPECT_EQ(options.metrics, (std::vector<Metric>{Metric::kItl, Metric::kTtft}));
  EXPECT_EQ(options.percentiles, (std::vector<double>{95, 99.9}));
}

TEST(BenchOptions, SaysWhatDoesNotGoTogether) {
  struct Case {
    std::vector<const char*> arguments;
    const char* says;
  };
  for (const auto& [arguments, says] :
       std::vector<Case>{{{"--num-prompts", "5", "--duration", "1"}, "exclude each other"},
                         {{"--request-rate", "0"}, "a number above 0"},
                         {{"--request-rate", "nan"}, "a number above 0"},
                         {{"--dataset-name", "trace"}, "go together"},
                         {{"--dataset-path", "x.csv"}, "go together"},
                         {{"--use-trace-timestamps"}, "--dataset-name trace"},
                         {{"--random-range-ratio", "0.5"}, "--dataset-name random"},
                         {{"--save-detailed"}, "--json"},
                         {{"--dataset-name", "lmql", "--score"}, "--lmql-pattern scores"},
                         {{"--prompt", "[]"}, "is empty"},
                         {{"--max-concurrency", "0"}, "range"},
                         {{"--max-concurrency", "8,x"}, "x"},
                         {{"--nothing"}, "--help shows the options"}}) {
    const std::string error = mistake(arguments);
    EXPECT_NE(error.find(says), std::string::npos) << error;
    EXPECT_EQ(error.rfind("lmtp-bench: ", 0), 0U) << error;
  }
  std::string many = "1";
  for (int i = 0; i < 20; ++i) many += ",1";
  EXPECT_NE(mistake({"--max-concurrency", many.c_str(), "--request-rate", many.c_str()})
                .find("256 points"),
            std::string::npos);
}

}  // namespace
}  // namespace lmtp::tools

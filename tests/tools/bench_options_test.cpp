#include "lmtp-bench/bench_options.h"

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

TEST(BenchOptions, AnOptionWithoutEffectIsRefusedWithWhatToDo) {
  struct Case {
    std::vector<const char*> arguments;
    const char* says;
  };
  const std::vector<Case> cases = {
      {{"--burstiness", "2"}, "--burstiness has no effect without a finite --request-rate"},
      {{"--burstiness", "2", "--request-rate", "inf"}, "finite --request-rate: add one"},
      {{"--trace-speedup", "2"}, "--use-trace-timestamps: add that"},
      {{"--trace-length-divisor", "2"}, "--dataset-path FILE: add these"},
      {{"--max-model-len", "99"}, "--dataset-name trace"},
      {{"--dataset-name", "trace", "--dataset-path", "x.csv", "-n", "5"},
       "--random-output-len has no effect on a trace"},
      {{"--dataset-name", "trace", "--dataset-path", "x.csv", "--input-len", "5"},
       "--trace-length-divisor changes those"},
      {{"--dataset-name", "trace", "--dataset-path", "x.csv", "--prefix-len", "5"}, "a trace"},
      {{"--dataset-name", "trace", "--dataset-path", "x.csv", "--prompt", "[1]"},
       "--prompt has no effect on a trace"},
      {{"--dataset-name", "trace", "--dataset-path", "x.csv", "--random-range-ratio", "0.5"},
       "--dataset-name random or lmql"},
      {{"--prompt", "[1]", "--random-input-len", "5"}, "beside --prompt"},
      {{"--prompt", "[1]", "--prefix-len", "5"}, "beside --prompt"},
      {{"--prompt", "[1]", "--seed", "5"}, "where nothing is drawn"},
      {{"--num-prefix-groups", "2"}, "add --prefix-len N"},
      {{"--score", "--temperature", "1"}, "--temperature has no effect on what is scored"},
      {{"--score", "--ignore-eos"}, "--ignore-eos has no effect"},
      {{"--score", "--ban-token", "1"}, "--ban-token has no effect"},
      {{"--lmql-pattern", "beams"}, "--dataset-name lmql: add that"},
      {{"--lmql-beams", "2"}, "add --dataset-name lmql"},
      {{"--dataset-name", "lmql", "--lmql-pattern", "chunks", "--lmql-beams", "2"}, "--lmql-beams"},
      {{"--dataset-name", "lmql", "--lmql-pattern", "beams", "--lmql-mask-size", "2"}, "mask-size"},
      {{"--dataset-name", "lmql", "--lmql-pattern", "beams", "--lmql-scores", "2"}, "lmql-scores"},
      {{"--dataset-name", "lmql", "--lmql-pattern", "beams", "--lmql-score-len", "2"}, "score-len"},
      {{"--dataset-name", "lmql", "--lmql-pattern", "scores", "-n", "5"},
       "--lmql-score-len instead"},
      {{"--dataset-name", "lmql", "--lmql-pattern", "scores", "--temperature", "1"}, "temperature"},
  };
  for (const auto& [arguments, says] : cases) {
    const std::string error = mistake(arguments);
    EXPECT_NE(error.find(says), std::string::npos) << error;
    EXPECT_NE(error.find(" has no effect "), std::string::npos) << error;
  }
}

TEST(BenchOptions, AnOptionWithAnEffectIsTaken) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{
           {"--burstiness", "2", "--request-rate", "inf,4"},
           {"--dataset-name", "trace", "--dataset-path", "x.csv", "--use-trace-timestamps",
            "--trace-speedup", "2", "--trace-length-divisor", "2", "--max-model-len", "99",
            "--seed", "3", "--score"},
           {"--prompt", "[1]", "--seed", "3", "--score", "-n", "3"},
           {"--prompt", "[1]", "--seed", "3", "--request-rate", "4"},
           {"--prefix-len", "4", "--num-prefix-groups", "2", "--temperature", "1", "--ignore-eos"},
           {"--dataset-name", "lmql", "--lmql-mask-size", "5", "--lmql-beams", "2", "--lmql-scores",
            "2", "--lmql-score-len", "2", "-n", "9", "--random-range-ratio", "0.5"},
           {"--dataset-name", "lmql", "--lmql-pattern", "scores", "--lmql-scores", "3"}}) {
    EXPECT_TRUE(std::holds_alternative<BenchOptions>(parse(arguments))) << arguments.back();
  }
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
                         {{"--api-key", ""}, "it is empty"},
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

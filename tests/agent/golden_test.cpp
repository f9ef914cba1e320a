// The CPU agent against what `transformers` says in f32.
#include "golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <tuple>

#include "agent_driver.h"
#include "source_dir.h"
#include "test_data.h"

namespace lmtp {
namespace {

constexpr float kLogprobTolerance = 1e-4F;
constexpr float kBF16CacheTolerance = 0.3F;
constexpr float kF16CacheTolerance = 0.03F;

struct Case {
  const char* name;
  std::string folder;
  std::string goldens;
};

void check_golden(scheduler::ModelAgent& agent, const testing::Golden& golden) {
  SCOPED_TRACE(golden.name);
  testing::AgentDriver driver(agent);
  std::size_t first = 0;
  testing::DrivenStream* stream = nullptr;
  if (golden.is_score) {
    std::vector<TokenId> scored;
    for (const testing::GoldenStep& step : golden.steps) scored.push_back(step.token);
    first = golden.prompt.empty() ? 1 : 0;
    if (golden.prompt.size() + scored.size() < 2) return;  // nothing goes through the model
    stream = &driver.score(golden.prompt, scored);
  } else {
    SamplingParams params;
    params.logit_bias = golden.logit_bias;
    stream = &driver.generate(golden.prompt, static_cast<int>(golden.steps.size()), params);
  }
  driver.run();
  ASSERT_EQ(stream->results.size(), golden.steps.size() - first);
  for (std::size_t i = first; i < golden.steps.size(); ++i) {
    const scheduler::TokenResult& result = stream->results[i - first];
    ASSERT_EQ(result.token, golden.steps[i].token) << "at step " << i;
    ASSERT_NEAR(result.logprob, golden.steps[i].logprob, kLogprobTolerance) << "at step " << i;
  }
}

void check_file(const std::string& folder, const std::string& goldens, int num_ranks = 1) {
  const auto agent =
      testing::load_agent(testing::folder_source(folder), std::max(2, num_ranks),
                          kernels::WeightType::kF32, nullptr, std::nullopt, num_ranks);
  ASSERT_NE(agent, nullptr);
  const auto cases = testing::read_goldens(goldens);
  ASSERT_FALSE(cases.empty());
  for (const testing::Golden& golden : cases) check_golden(*agent, golden);
}

class GoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, TokensAndLogprobsAreThoseOfTransformers) {
  const std::string root = testing::source_dir() + "/tests/goldens/";
  check_file(root + "checkpoints/" + GetParam(), root + GetParam() + ".json");
}

INSTANTIATE_TEST_SUITE_P(TinyCheckpoints, GoldenTest,
                         ::testing::Values("five-heads-f16", "narrow-mlp-bf16", "hub-names-f32",
                                           "untied-f32"));

class FamilyGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyGoldenTest, TokensAndLogprobsAreThoseOfTransformers) {
  const std::string folder = testing::source_dir() + "/tests/goldens/families/" + GetParam();
  check_file(folder, folder + "/golden.json");
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGoldenTest,
                         ::testing::Values("gpt-neox", "gpt-neox-sequential", "opt",
                                           "opt-narrow-embedding", "llama", "llama3-tied",
                                           "llama-linear-biased", "mistral", "qwen2",
                                           "qwen2-window", "qwen3", "phi3", "phi3-longrope",
                                           "gemma2", "gemma3", "olmo2", "granite", "cohere2", "phi",
                                           "nemotron", "gpt-bigcode", "apertus", "hunyuan",
                                           "falcon", "codegen", "olmo"));

class ExpertsGoldenTest : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(ExpertsGoldenTest, TokensAndLogprobsAreThoseOfTransformers) {
  const auto& [name, num_ranks] = GetParam();
  const std::string folder = testing::source_dir() + "/tests/goldens/experts/" + name;
  check_file(folder, folder + "/golden.json", num_ranks);
}

INSTANTIATE_TEST_SUITE_P(Experts, ExpertsGoldenTest,
                         ::testing::Combine(::testing::Values("qwen3-moe", "mixtral", "olmoe",
                                                              "granitemoe", "qwen2-moe", "gpt-oss",
                                                              "glm4-moe", "ernie4-5-moe"),
                                            ::testing::Values(1, 2)));

// Keys and values of fewer bits than the weights' float32: how far a log probability may be from
// transformers'. What they draw may differ, so that all is scored.
class KvTypeGoldenTest
    : public ::testing::TestWithParam<std::tuple<const char*, kernels::ElementType>> {};

TEST_P(KvTypeGoldenTest, LogprobsAreNearThoseOfTransformers) {
  const auto& [name, type] = GetParam();
  const std::string folder = testing::source_dir() + "/tests/goldens/families/" + name;
  const auto agent = testing::load_agent(testing::folder_source(folder), 2,
                                         kernels::WeightType::kF32, nullptr, type);
  ASSERT_NE(agent, nullptr);
  const float tolerance =
      type == kernels::ElementType::kF16 ? kF16CacheTolerance : kBF16CacheTolerance;
  float most = 0.0F;
  for (const testing::Golden& golden : testing::read_goldens(folder + "/golden.json")) {
    if (golden.logit_bias != nullptr || golden.prompt.empty()) continue;
    SCOPED_TRACE(golden.name);
    std::vector<TokenId> scored;
    for (const testing::GoldenStep& step : golden.steps) scored.push_back(step.token);
    testing::AgentDriver driver(*agent);
    const testing::DrivenStream& stream = driver.score(golden.prompt, scored);
    driver.run();
    ASSERT_EQ(stream.results.size(), golden.steps.size());
    for (std::size_t i = 0; i < golden.steps.size(); ++i) {
      most = std::max(most, std::abs(stream.results[i].logprob - golden.steps[i].logprob));
    }
  }
  EXPECT_GT(most, kLogprobTolerance) << "keys and values are float32";
  EXPECT_LE(most, tolerance);
  RecordProperty("most", std::to_string(most));
  std::printf("%s, keys and values of %s: log probabilities differ by %.2g at most\n", name,
              agent->info().kv_dtype.c_str(), static_cast<double>(most));
}

INSTANTIATE_TEST_SUITE_P(Families, KvTypeGoldenTest,
                         ::testing::Combine(::testing::Values("gpt-neox", "opt", "llama", "mistral",
                                                              "qwen2", "qwen3", "phi3", "gemma2"),
                                            ::testing::Values(kernels::ElementType::kBF16,
                                                              kernels::ElementType::kF16)));

// A family each, which 2 and 4 ranks can divide.
class RanksGoldenTest : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(RanksGoldenTest, TokensAndLogprobsAreThoseOfTransformers) {
  const auto& [name, num_ranks] = GetParam();
  const std::string folder = testing::source_dir() + "/tests/goldens/ranks/" + name;
  check_file(folder, folder + "/golden.json", num_ranks);
}

INSTANTIATE_TEST_SUITE_P(
    Families, RanksGoldenTest,
    ::testing::Combine(::testing::Values("gpt2", "gpt-neox", "opt", "llama", "mistral", "qwen2",
                                         "qwen3", "phi3", "gemma2", "llama-two-kv", "phi3-one-kv"),
                       ::testing::Values(1, 2, 4)));

// Files by llama.cpp's converter (tests/goldens/make_gguf.py); transformers has their weights
// dequantized.
class GgufGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufGoldenTest, TokensAndLogprobsAreThoseOfTransformers) {
  const std::string file = testing::source_dir() + "/tests/goldens/gguf/" + GetParam();
  check_file(file + ".gguf", file + ".json");
}

INSTANTIATE_TEST_SUITE_P(Families, GgufGoldenTest,
                         ::testing::Values("mixed", "llama3-tied", "llama-linear-biased", "qwen2",
                                           "qwen3", "phi3-longrope", "gemma2", "gpt-neox", "gpt2",
                                           "olmo2", "granite", "nemotron", "gpt-bigcode", "apertus",
                                           "falcon", "mixtral", "qwen2-moe", "qwen3-moe", "olmoe",
                                           "granitemoe", "gpt-oss", "glm4-moe", "ernie4-5-moe"));

// Folders that other libraries quantised; activations stay float.
class QuantizedGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantizedGoldenTest, TokensAndLogprobsAreThoseOfTransformersOnTheDequantisedWeights) {
  const std::string folder = testing::source_dir() + "/tests/goldens/quantized/" + GetParam();
  check_file(folder, folder + "/golden.json");
}

// A rank has codes of its share of the outputs, and numbers of its share of the inputs.
TEST_P(QuantizedGoldenTest, TwoRanksGiveThemToo) {
  const std::string folder = testing::source_dir() + "/tests/goldens/quantized/" + GetParam();
  check_file(folder, folder + "/golden.json", 2);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedGoldenTest,
                         ::testing::Values("ct-old-w4-group", "ct-old-w4-ordered",
                                           "ct-old-w8-naive", "ct-old-fp8-static", "ct-new-w4-asym",
                                           "ct-new-mixed", "ct-new-fp8-dynamic", "ct-new-fp8-block",
                                           "fp8-blocks", "fp8-tensors", "gptq-w4-g32",
                                           "gptq-w4-ordered", "gptq-v2-w8", "awq-w4-g32",
                                           "smooth-fp8", "ct-new-nvfp4", "ct-new-mxfp4",
                                           "modelopt-nvfp4", "modelopt-fp8", "gptq-experts",
                                           "awq-experts"));

class GgufRanksGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufRanksGoldenTest, TwoRanksGiveTheTokensAndLogprobsOfTransformers) {
  const std::string file = testing::source_dir() + "/tests/goldens/gguf/" + GetParam();
  check_file(file + ".gguf", file + ".json", 2);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufRanksGoldenTest,
                         ::testing::Values("llama3-tied", "qwen3", "phi3-longrope", "gemma2",
                                           "qwen2-moe", "gpt-oss"));

using testing::TestData;

TEST_F(TestData, TinyGpt2) { check_file(data("models/tiny-gpt2"), data("goldens/tiny-gpt2.json")); }

TEST_F(TestData, Stories260K) {
  check_file(data("models/stories260K"), data("goldens/stories260K.json"));
}

// How far the scores of the demo's goldens are off, on average, with weights of that type.
double mean_error(kernels::WeightType type) {
  const std::string root = testing::source_dir();
  const auto agent = testing::load_agent(testing::folder_source(root + "/models/demo"), 2, type);
  double sum = 0.0;
  int count = 0;
  for (const testing::Golden& golden : testing::read_goldens(root + "/tests/goldens/demo.json")) {
    if (golden.logit_bias != nullptr || golden.prompt.empty()) continue;
    std::vector<TokenId> scored;
    for (const testing::GoldenStep& step : golden.steps) scored.push_back(step.token);
    testing::AgentDriver driver(*agent);
    const testing::DrivenStream& stream = driver.score(golden.prompt, scored);
    driver.run();
    for (std::size_t i = 0; i < golden.steps.size(); ++i) {
      sum += std::fabs(static_cast<double>(stream.results[i].logprob - golden.steps[i].logprob));
      ++count;
    }
  }
  return sum / count;
}

TEST(GoldenOfDemoTest, NarrowerWeightsAreOffByLittle) {
  EXPECT_LT(mean_error(kernels::WeightType::kF32), 1e-5);
  EXPECT_LT(mean_error(kernels::WeightType::kBF16), 0.02);
  EXPECT_LT(mean_error(kernels::WeightType::kInt8), 0.06);
}

TEST(GoldenOfDemoTest, Demo) {
  const std::string folder = testing::source_dir() + "/models/demo";
  const std::string goldens = testing::source_dir() + "/tests/goldens/demo.json";
  check_file(folder, goldens);
}

}  // namespace
}  // namespace lmtp

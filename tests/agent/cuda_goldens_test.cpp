// The agent of a device against transformers: a layer of every family, and checkpoints of codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent_driver.h"
#include "device_under_test.h"
#include "golden.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using kernels::WeightType;
using testing::AgentDriver;
using testing::DrivenStream;

std::unique_ptr<scheduler::ModelAgent> load_ranks(const std::string& folder, WeightType type,
                                                  int num_ranks = 1) {
  return testing::load_agent(testing::folder_source(testing::goldens() + folder), 2, type,
                             &testing::device_under_test(), std::nullopt, num_ranks);
}

// How far log probabilities are off, at most and on average, over a few of the goldens, each a
// prompt that is scored with what followed it.
struct Errors {
  double worst = 0.0;
  double mean = 0.0;
};

Errors errors_of(scheduler::ModelAgent& agent, const std::string& goldens) {
  constexpr int kCases = 2;
  constexpr std::size_t kSteps = 10;
  Errors errors;
  int num_scored = 0;
  int num_cases = 0;
  for (const testing::Golden& golden : testing::read_goldens(goldens)) {
    if (golden.prompt.empty() || golden.logit_bias != nullptr || num_cases == kCases) continue;
    ++num_cases;
    std::vector<TokenId> scored;
    for (std::size_t i = 0; i < std::min(kSteps, golden.steps.size()); ++i) {
      scored.push_back(golden.steps[i].token);
    }
    AgentDriver driver(agent);
    const DrivenStream& stream = driver.score(golden.prompt, scored);
    driver.run();
    EXPECT_EQ(stream.results.size(), scored.size());
    for (std::size_t i = 0; i < scored.size(); ++i) {
      const double error =
          std::fabs(static_cast<double>(stream.results[i].logprob - golden.steps[i].logprob));
      errors.worst = std::max(errors.worst, error);
      errors.mean += error;
      ++num_scored;
    }
  }
  EXPECT_EQ(num_cases, kCases);
  errors.mean /= num_scored;
  return errors;
}

constexpr double kBf16Error = 0.06;

// A layer of every kind.
class CudaGoldenTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Checkpoints, CudaGoldenTest,
                         ::testing::Values("gpt-neox", "opt-narrow-embedding", "llama3-tied",
                                           "qwen3", "phi3-longrope", "gemma2"));

TEST_P(CudaGoldenTest, LogprobsAreThoseOfTransformers) {
  const std::string folder = std::string("families/") + GetParam();
  const std::string goldens = testing::goldens() + folder + "/golden.json";
  EXPECT_LT(errors_of(*load_ranks(folder, WeightType::kF32), goldens).worst, 1e-4);
  EXPECT_LT(errors_of(*load_ranks(folder, WeightType::kBF16), goldens).mean, kBf16Error);
  // Three bits of the fraction more are an eighth of the error.
  EXPECT_LT(errors_of(*load_ranks(folder, WeightType::kF16), goldens).mean, kBf16Error / 8);
}

// A model on two devices, or more, whose sums go through the host's memory.
class CudaRanksTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Checkpoints, CudaRanksTest, ::testing::Values("gpt2", "opt", "llama"));

TEST_P(CudaRanksTest, LogprobsAreThoseOfTransformers) {
  if (!testing::set_backward_sums(false)) GTEST_SKIP() << "needs two devices: tools/gpu-check";
  const std::string folder = std::string("ranks/") + GetParam();
  const auto agent = load_ranks(folder, WeightType::kF32, 2);
  EXPECT_EQ(agent->info().device, "cuda:0,1");
  EXPECT_TRUE(agent->runs_ahead());
  EXPECT_LT(errors_of(*agent, testing::goldens() + folder + "/golden.json").worst, 1e-4);
}

// Checkpoints whose matrices are codes, against transformers on the dequantised weights.
class CudaQuantisedTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Checkpoints, CudaQuantisedTest,
                         ::testing::Values("quantized/ct-new-fp8-dynamic", "quantized/gptq-w4-g32",
                                           "quantized/ct-new-w4-asym", "gguf/mixed"));

TEST_P(CudaQuantisedTest, CodesStayNarrowAndGiveTheLogprobsOfTheirNumbers) {
  const std::string name = GetParam();
  const bool is_gguf = name.starts_with("gguf/");
  const std::string folder = is_gguf ? name + ".gguf" : name;
  const std::string goldens = testing::goldens() + name + (is_gguf ? ".json" : "/golden.json");
  EXPECT_LT(errors_of(*load_ranks(folder, WeightType::kF32), goldens).worst, 1e-4);
  for (const WeightType type : {WeightType::kBF16, WeightType::kF16}) {
    const auto agent = load_ranks(folder, type);
    EXPECT_EQ(agent->info().num_widened, 0);
    EXPECT_LT(errors_of(*agent, goldens).mean,
              type == WeightType::kBF16 ? kBf16Error : kBf16Error / 8);
  }
}

}  // namespace
}  // namespace lmtp

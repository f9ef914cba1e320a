// The CPU agent against what `transformers` says in f32.
#include "golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "agent_driver.h"

namespace lmtp {
namespace {

constexpr float kLogprobTolerance = 1e-4F;

struct Case {
  const char* name;
  std::string folder;
  std::string goldens;
};

void check_golden(agent::ModelAgent& agent, const testing::Golden& golden) {
  SCOPED_TRACE(golden.name);
  testing::AgentDriver driver(agent);
  std::size_t first = 0;
  testing::DrivenStream* stream = nullptr;
  if (golden.is_score) {
    std::vector<TokenId> scored;
    for (const testing::GoldenStep& step : golden.steps) {
      scored.push_back(step.token);
    }
    first = golden.prompt.empty() ? 1 : 0;
    if (golden.prompt.size() + scored.size() < 2) {
      return;  // nothing goes through the model
    }
    stream = &driver.score(golden.prompt, scored);
  } else {
    protocol::SamplingParams params;
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

void check_file(const std::string& folder, const std::string& goldens) {
  const auto agent = testing::load_agent(testing::folder_source(folder));
  ASSERT_NE(agent, nullptr);
  const auto cases = testing::read_goldens(goldens);
  ASSERT_FALSE(cases.empty());
  for (const testing::Golden& golden : cases) {
    check_golden(*agent, golden);
  }
}

class GoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, TokensAndLogprobsAreThoseOfTransformers) {
  const std::string root = std::string(LMTP_SOURCE_DIR) + "/tests/goldens/";
  check_file(root + "checkpoints/" + GetParam(), root + GetParam() + ".json");
}

INSTANTIATE_TEST_SUITE_P(TinyCheckpoints, GoldenTest,
                         ::testing::Values("five-heads-f16", "narrow-mlp-bf16", "hub-names-f32",
                                           "untied-f32"));

TEST(GoldenOfTestDataTest, TinyGpt2) {
  const char* data = std::getenv("LMTP_TEST_DATA");
  if (data == nullptr) {
    GTEST_SKIP() << "LMTP_TEST_DATA does not name the folder with tiny-gpt2";
  }
  const std::string root = std::string(data) + "/data/";
  check_file(root + "models/tiny-gpt2", root + "goldens/tiny-gpt2.json");
}

TEST(GoldenOfDemoTest, Demo) {
  const std::string folder = std::string(LMTP_SOURCE_DIR) + "/models/demo";
  const std::string goldens = std::string(LMTP_SOURCE_DIR) + "/tests/goldens/demo.json";
  check_file(folder, goldens);
}

}  // namespace
}  // namespace lmtp

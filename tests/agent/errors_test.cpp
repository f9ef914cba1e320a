// Loading that must fail, each with a reason a person can act on; and one row's failure.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "agent_driver.h"
#include "lmtp/agent/model_memory.h"
#include "source_dir.h"

namespace lmtp {
namespace {

std::string load_error(const ModelSource& source, std::int64_t kv_cache_bytes) {
  const auto config = model::load_model_config(source);
  if (!config.ok()) return config.error().message;
  agent::AgentOptions options;
  options.source = source;
  options.config = *config;
  options.kv_cache_bytes = kv_cache_bytes;
  const auto agent = agent::make_agent(options, nullptr);
  return agent.ok() ? "" : agent.error().message;
}

TEST(AgentErrorsTest, AKvCacheThatIsTooSmallNamesWhatIsNeeded) {
  const auto source =
      testing::folder_source(testing::source_dir() + "/tests/goldens/checkpoints/untied-f32");
  const std::string error = load_error(source, 1000);
  EXPECT_NE(error.find("--kv-cache at least "), std::string::npos) << error;
  const std::int64_t needed = std::stoll(error.substr(error.find("at least ") + 9));
  EXPECT_EQ(load_error(source, needed), "");
  EXPECT_NE(load_error(source, needed - 1), "");
}

TEST(AgentErrorsTest, AnUnknownShapeListsThoseThereAre) {
  ModelSource source;
  source.kind = SourceKind::kRandom;
  source.shape = "gpt5";
  const std::string error = load_error(source, 0);
  EXPECT_NE(error.find("gpt2-medium"), std::string::npos) << error;
}

TEST(AgentErrorsTest, TooManyInputsForInt8AreRefusedAtOnce) {
  agent::AgentOptions options;
  options.source =
      testing::folder_source(testing::source_dir() + "/tests/goldens/checkpoints/untied-f32");
  options.config = *model::load_model_config(options.source);
  options.kv_cache_bytes = testing::kTestKvBytes;
  options.weight_type = kernels::WeightType::kInt8;
  EXPECT_TRUE(agent::estimate_memory(options).ok());
  options.config.mlp_size = static_cast<int>(kernels::kInt8InputsMax) + 64;
  const auto expect_refused = [&] {
    const auto memory = agent::estimate_memory(options);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().message,
              "a matrix of this model has 65600 inputs; one of int8 has 65536 at most: serve an "
              "unquantised checkpoint with --dtype bfloat16");
    EXPECT_FALSE(agent::make_agent(options, nullptr).ok());
  };
  expect_refused();
  options.weight_type = kernels::WeightType::kInt4;
  EXPECT_TRUE(agent::estimate_memory(options).ok()) << "only tables are int8";
  options.config.hidden_size = options.config.mlp_size;
  expect_refused();
  options.weight_type = kernels::WeightType::kBF16;
  EXPECT_TRUE(agent::estimate_memory(options).ok());
  options.config.quantization.schemes.emplace_back().rounds_activations = true;
  expect_refused();
}

TEST(AgentErrorsTest, ExpertsOnADeviceAreRefusedAtOnce) {
  agent::AgentOptions options;
  options.source = testing::folder_source(testing::source_dir() + "/tests/goldens/experts/mixtral");
  options.config = *model::load_model_config(options.source);
  options.kv_cache_bytes = testing::kTestKvBytes;
  EXPECT_TRUE(agent::estimate_memory(options).ok());
  options.cuda_device = 0;
  const auto memory = agent::estimate_memory(options);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().message,
            "this model is a mixture of experts, which the CUDA kernels do not compute; a CPU is "
            "needed: serve it on the CPU");
}

TEST(AgentErrorsTest, ACancelledLoadingEnds) {
  agent::AgentOptions options;
  options.source =
      testing::folder_source(testing::source_dir() + "/tests/goldens/checkpoints/untied-f32");
  options.config = *model::load_model_config(options.source);
  options.kv_cache_bytes = testing::kTestKvBytes;
  int num_calls = 0;
  const auto agent = agent::make_agent(options, [&](int) {
    ++num_calls;
    return false;
  });
  ASSERT_FALSE(agent.ok());
  EXPECT_NE(agent.error().message.find("given up"), std::string::npos) << agent.error().message;
  EXPECT_EQ(num_calls, 1);
}

// A NaN in the bias of one token's logit stands for a model whose row is broken.
TEST(AgentErrorsTest, ARowThatIsNotNumbersFailsAlone) {
  const auto agent = testing::load_agent(
      testing::folder_source(testing::source_dir() + "/tests/goldens/checkpoints/untied-f32"));
  SamplingParams broken;
  auto bias = std::make_shared<LogitBias>();
  bias->ids = {3};
  bias->values = {std::numeric_limits<float>::quiet_NaN()};
  broken.logit_bias = bias;
  testing::DrivenSequence sequences[2];
  scheduler::StepPlan plan;
  for (int i = 0; i < 2; ++i) {
    testing::DrivenSequence& sequence = sequences[i];
    sequence.tokens = {1, 2, 3};
    sequence.num_prompt = 3;
    sequence.blocks = {1 + i};
    if (i == 0) sequence.params = broken;
    plan.changes.started.push_back(testing::start_of(sequence, i));
    plan.rows.push_back({.slot = i, .first_position = 0, .num_tokens = 3, .num_logits = 1});
  }
  plan.num_tokens = 6;
  plan.num_logits = 2;
  const auto result = agent->execute(plan);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->rows[0].error.has_value());
  EXPECT_FALSE(result->rows[1].error.has_value());
  ASSERT_EQ(result->rows[1].tokens.size(), 1U);
  EXPECT_TRUE(std::isfinite(result->rows[1].tokens[0].logprob));
}

}  // namespace
}  // namespace lmtp

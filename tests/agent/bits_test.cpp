// The numerics contract at the agent: a stream's tokens and log probabilities, to the bit, do not
// depend on chunk sizes, threads, other streams, or on being scored instead of generated.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "agent_driver.h"
#include "bit_cases.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using scheduler::TokenResult;
using testing::AgentDriver;
using testing::bits;
using testing::DrivenStream;
using testing::expect_same_bits;
using testing::params_of;
using testing::prompt_of;

// One of every layer, with windows and soft caps among them.
const char* const kCheckpoints[] = {"checkpoints/five-heads-f16",
                                    "checkpoints/untied-f32",
                                    "families/gpt-neox",
                                    "families/opt-narrow-embedding",
                                    "families/llama3-tied",
                                    "families/mistral",
                                    "families/phi3-longrope",
                                    "families/gemma2",
                                    "families/gemma3",
                                    "families/olmo2",
                                    "families/granite",
                                    "families/cohere2",
                                    "families/gpt-bigcode",
                                    "families/apertus",
                                    "families/hunyuan",
                                    "families/olmo",
                                    "experts/qwen2-moe",
                                    "experts/gpt-oss",
                                    "experts/glm4-moe",
                                    "quantized/gptq-w4-ordered",
                                    "quantized/ct-new-w8a8",
                                    "quantized/fp8-blocks"};

using KvType = std::optional<kernels::ElementType>;

// A checkpoint, the type its weights are packed in, and that of keys and values.
using Case = std::tuple<const char*, kernels::WeightType, KvType>;

std::unique_ptr<scheduler::ModelAgent> load(const Case& which, int num_threads = 2) {
  const std::string folder = testing::source_dir() + "/tests/goldens/" + std::get<0>(which);
  return testing::load_agent(testing::folder_source(folder), num_threads, std::get<1>(which),
                             nullptr, std::get<2>(which));
}

std::vector<TokenResult> generate_alone(scheduler::ModelAgent& agent, int number, int length,
                                        int num_wanted, int chunk = testing::kTestBatchedTokens) {
  AgentDriver driver(agent);
  const DrivenStream& stream =
      driver.generate(prompt_of(number, length), num_wanted, params_of(number), chunk);
  driver.run();
  return stream.results;
}

class BitsTest : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, BitsTest,
    ::testing::Combine(::testing::ValuesIn(kCheckpoints),
                       ::testing::Values(kernels::WeightType::kF32, kernels::WeightType::kBF16,
                                         kernels::WeightType::kInt8, kernels::WeightType::kInt4),
                       ::testing::Values(KvType())));

// Heads of several sizes, a window, a soft cap.
INSTANTIATE_TEST_SUITE_P(
    Fp8Cache, BitsTest,
    ::testing::Combine(::testing::Values("checkpoints/five-heads-f16", "families/llama3-tied",
                                         "families/mistral", "families/gemma2"),
                       ::testing::Values(kernels::WeightType::kF32, kernels::WeightType::kBF16),
                       ::testing::Values(KvType(kernels::ElementType::kE4M3))));

// Narrower than the weights, and wider.
INSTANTIATE_TEST_SUITE_P(
    CacheOf16Bits, BitsTest,
    ::testing::Combine(::testing::Values("checkpoints/five-heads-f16", "families/llama3-tied",
                                         "families/mistral", "families/gemma2"),
                       ::testing::Values(kernels::WeightType::kF32),
                       ::testing::Values(KvType(kernels::ElementType::kBF16),
                                         KvType(kernels::ElementType::kF16))));

INSTANTIATE_TEST_SUITE_P(WideCache, BitsTest,
                         ::testing::Combine(::testing::Values("families/llama3-tied"),
                                            ::testing::Values(kernels::WeightType::kBF16,
                                                              kernels::WeightType::kInt8),
                                            ::testing::Values(KvType(kernels::ElementType::kF32),
                                                              KvType(kernels::ElementType::kF16))));

TEST_P(BitsTest, ChunksOfThePromptDoNotMatter) {
  const auto agent = load(GetParam());
  const auto whole = generate_alone(*agent, 1, 120, 20);
  for (const int chunk : {1, 7, 16, 33, 64}) {
    SCOPED_TRACE(chunk);
    expect_same_bits(generate_alone(*agent, 1, 120, 20, chunk), whole);
  }
}

TEST_P(BitsTest, ThreadsDoNotMatter) {
  const auto expected = generate_alone(*load(GetParam(), 1), 3, 90, 20);
  for (const int num_threads : {2, 3}) {
    SCOPED_TRACE(num_threads);
    expect_same_bits(generate_alone(*load(GetParam(), num_threads), 3, 90, 20), expected);
  }
}

TEST_P(BitsTest, AStreamAmongOthersEqualsItselfAlone) {
  constexpr int kNumStreams = 32;
  const auto agent = load(GetParam());
  AgentDriver driver(*agent);
  std::vector<const DrivenStream*> streams;
  std::vector<const DrivenStream*> scores;
  for (int number = 0; number < kNumStreams; ++number) {
    streams.push_back(
        &driver.generate(prompt_of(number, 1 + number * 4), 20, params_of(number), 1 + number * 5));
    scores.push_back(&driver.score(prompt_of(number, number), prompt_of(number + 1, 9), 6));
  }
  driver.run();
  for (int number = 0; number < kNumStreams; ++number) {
    SCOPED_TRACE(number);
    const auto at = static_cast<std::size_t>(number);
    expect_same_bits(streams[at]->results, generate_alone(*agent, number, 1 + number * 4, 20));
    AgentDriver alone(*agent);
    const DrivenStream& score = alone.score(prompt_of(number, number), prompt_of(number + 1, 9));
    alone.run();
    expect_same_bits(scores[at]->results, score.results);
  }
}

TEST_P(BitsTest, AScoreOfWhatWasGeneratedGivesItsLogprobs) {
  const auto agent = load(GetParam());
  AgentDriver driver(*agent);
  SamplingParams params;
  params.temperature = 1.5F;
  params.seed = 5;
  const DrivenStream& generated = driver.generate(prompt_of(2, 40), 60, params);
  driver.run();
  std::vector<TokenId> tokens;
  for (const TokenResult& result : generated.results) tokens.push_back(result.token);
  for (const int chunk : {3, 512}) {
    AgentDriver again(*agent);
    const DrivenStream& scored = again.score(prompt_of(2, 40), tokens, chunk);
    again.run();
    ASSERT_EQ(scored.results.size(), tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(scored.results[i].token, tokens[i]);
      ASSERT_EQ(bits(scored.results[i].logprob), bits(generated.results[i].logprob)) << i;
    }
  }
}

TEST_P(BitsTest, ACopiedBlockServesAsTheOriginal) {
  constexpr int kShared = 41;  // 2 blocks and 9 tokens
  const auto agent = load(GetParam());
  AgentDriver driver(*agent);
  const auto prompt = prompt_of(4, 60);
  const DrivenStream& first = driver.generate(prompt, 10, params_of(4));
  driver.run();
  DrivenStream& second = driver.generate(prompt, 10, params_of(4));
  const auto num_groups = static_cast<std::size_t>(driver.num_groups());
  for (std::size_t i = 0; i < 2 * num_groups; ++i) {
    second.sequence.blocks[i] = first.sequence.blocks[i];
  }
  second.sequence.num_computed = kShared;
  for (std::size_t i = 2 * num_groups; i < 3 * num_groups; ++i) {
    driver.copy_before_next_step({.from = first.sequence.blocks[i],
                                  .to = second.sequence.blocks[i],
                                  .num_tokens = kShared % kBlockSize});
  }
  driver.run();
  expect_same_bits(second.results, first.results);
}

TEST_P(BitsTest, ASequenceMayReadBlocksThatAnotherWritesInTheSameStep) {
  const auto agent = load(GetParam());
  AgentDriver driver(*agent);
  const auto prompt = prompt_of(6, 50);
  const DrivenStream& first = driver.generate(prompt, 5, params_of(6));
  DrivenStream& second = driver.generate(prompt, 5, params_of(6));
  for (std::size_t i = 0; i < 3 * static_cast<std::size_t>(driver.num_groups()); ++i) {
    second.sequence.blocks[i] = first.sequence.blocks[i];
  }
  second.sequence.num_computed = 48;
  driver.run();
  expect_same_bits(second.results, first.results);
}

}  // namespace
}  // namespace lmtp

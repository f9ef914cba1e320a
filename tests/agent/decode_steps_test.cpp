// Decode steps on a device: what is queued for one, and that graphs of whole steps give the bits of
// steps that run kernel by kernel.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "agent_driver.h"
#include "bit_cases.h"
#include "counted_device.h"
#include "device_under_test.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using scheduler::RowMask;
using scheduler::TokenResult;
using testing::AgentDriver;
using testing::counted_device;
using testing::device_counts;
using testing::DeviceCalls;
using testing::DrivenStream;
using testing::expect_same_bits;
using testing::params_of;
using testing::prompt_of;
using testing::take_calls;

constexpr DeviceCalls kOneGraph = {.graphs = 1, .events = 1};

class DecodeStepsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    testing::set_lazy_device(false);
    device_counts.refused = 0;
  }

  static std::unique_ptr<scheduler::ModelAgent> load(bool with_graphs) {
    agent::AgentOptions options;
    options.source =
        testing::folder_source(testing::source_dir() + "/tests/goldens/checkpoints/untied-f32");
    options.config = *model::load_model_config(options.source);
    options.weight_type = kernels::WeightType::kBF16;
    options.kv_cache_bytes = testing::kTestKvBytes;
    options.cuda_device = 0;
    options.debug.backend = &counted_device();
    options.debug.step_graphs = with_graphs;
    options.debug.graphs_at_load_ms = 0;
    auto agent = agent::make_agent(options, nullptr);
    EXPECT_TRUE(agent.ok()) << agent.error().message;
    return std::move(*agent);
  }
};

// Of other sizes and kinds from number to number, and from round to round.
SamplingParams params_of(int number, int round) {
  SamplingParams params = testing::params_of(number + round);
  constexpr int kNumTop[] = {0, 1, 7, 1024, 2};
  params.top_logprobs = kNumTop[(number + 2 * round) % 5];
  params.raw_logprobs = number % 3 == 2;
  if (number % 4 != 3) return params;
  auto bias = std::make_shared<LogitBias>();
  bias->ids = {3, 5 + number};
  bias->values = {2.0F, -1.0F};
  params.logit_bias = bias;
  return params;
}

// Streams that come and go, in slots that others had, with scores of a token a step among them.
std::vector<std::vector<TokenResult>> results_of(scheduler::ModelAgent& agent) {
  std::vector<std::vector<TokenResult>> results;
  for (int round = 0; round < 2; ++round) {
    AgentDriver driver(agent);
    std::vector<const DrivenStream*> streams;
    for (int number = 0; number < 7 - round; ++number) {
      const std::vector<TokenId> prompt = prompt_of(number, 1 + 3 * number + round);
      streams.push_back(number % 4 == 2
                            ? &driver.score(prompt, prompt_of(round, 6), 1)
                            : &driver.generate(prompt, 3 + 2 * number, params_of(number, round)));
    }
    driver.run();
    for (const DrivenStream* stream : streams) results.push_back(stream->results);
  }
  return results;
}

TEST_F(DecodeStepsTest, AStepIsOneGraph) {
  const auto agent = load(true);
  for (const bool has_penalties : {false, true}) {
    AgentDriver driver(*agent);
    for (int number = 0; number < 3; ++number) {
      SamplingParams params = testing::params_of(number);
      params.repetition_penalty = has_penalties ? 1.2F : 1.0F;
      params.top_logprobs = 3 * number;
      driver.generate(prompt_of(number, 3 + 13 * number), 24, params);
    }
    driver.score(prompt_of(5, 3), prompt_of(6, 24), 1);
    // The prompts; the score's that has no logits; a step by itself, and a capture for each turn.
    for (int i = 0; i < 6; ++i) driver.step();
    take_calls();
    for (int i = 0; i < 17; ++i) {  // with new blocks
      driver.step();
      EXPECT_EQ(take_calls(), kOneGraph) << i;
    }
  }
}

TEST_F(DecodeStepsTest, AreTheBitsOfStepsWithout) {
  const auto expected = results_of(*load(false));
  const auto agent = load(true);
  expect_same_bits(results_of(*agent), expected);
  expect_same_bits(results_of(*agent), expected);
  testing::set_lazy_device(true);
  expect_same_bits(results_of(*agent), expected);
}

TEST_F(DecodeStepsTest, GraphsThatAreNotToBeHadChangeNothing) {
  const auto expected = results_of(*load(false));
  for (const int each : {1, 3}) {
    SCOPED_TRACE(each);
    device_counts.refused = each;
    const auto agent = load(true);
    expect_same_bits(results_of(*agent), expected);
    if (each > 1) expect_same_bits(results_of(*agent), expected);  // by those that were to be had
  }
}

// Steps of which some have masks, said before or not; a mask that was announced may be none.
class MaskedSteps {
 public:
  explicit MaskedSteps(scheduler::ModelAgent& agent) : agent_(agent), even_(1 << 11, 0x55555555U) {}

  std::vector<std::vector<TokenResult>> run(bool announces) {
    std::vector<std::vector<TokenResult>> results;
    for (int round = 0; round < 16; ++round) {
      const bool has_masks = round % 4 < 2;
      const std::vector<RowMask> masks = {{RowMask::State::kReady, even_.data()}, {}, {}};
      const scheduler::StepPlan plan = plan_of(round, announces && round % 3 > 0);
      EXPECT_TRUE(agent_.forward(plan));
      EXPECT_TRUE(agent_.choose(has_masks ? std::span(masks) : std::span<const RowMask>()));
      calls_.push_back(take_calls());
      const auto result = agent_.collect();
      EXPECT_TRUE(result.ok());
      for (const scheduler::RowResult& row : result->rows) results.push_back(row.tokens);
      if (has_masks) {
        EXPECT_EQ(result->rows[0].tokens.at(0).token % 2, 0);
      }
    }
    return results;
  }
  const std::vector<DeviceCalls>& calls_of_rounds() const { return calls_; }

 private:
  static scheduler::StepPlan plan_of(int round, bool waits_for_masks) {
    scheduler::StepPlan plan;
    for (int slot = 0; slot < 3; ++slot) {
      testing::DrivenSequence sequence;
      sequence.tokens = {1, 2, 3 + slot};
      sequence.blocks = {1 + slot};
      sequence.params = params_of(slot, round);
      plan.changes.started.push_back(testing::start_of(sequence, slot));
      plan.rows.push_back({.slot = slot, .first_position = 2, .num_tokens = 1, .num_logits = 1});
    }
    plan.num_tokens = plan.num_logits = 3;
    plan.waits_for_masks = waits_for_masks;
    return plan;
  }

  scheduler::ModelAgent& agent_;
  const std::vector<std::uint32_t> even_;
  std::vector<DeviceCalls> calls_;
};

TEST_F(DecodeStepsTest, AStepWithMasksIsCutBeforeTheChoice) {
  const auto plain = load(false);
  const auto expected = MaskedSteps(*plain).run(false);
  const auto agent = load(true);
  for (const bool announces : {false, true}) {
    for (int i = 0; i < 2; ++i) {
      MaskedSteps steps(*agent);
      expect_same_bits(steps.run(announces), expected);
      if (i == 0) continue;  // some of them are captured
      for (std::size_t round = 0; round < steps.calls_of_rounds().size(); ++round) {
        const bool has_masks = round % 4 < 2;
        const bool is_cut = has_masks || (announces && round % 3 > 0);
        const bool counts_launches = testing::take_num_single_launches() >= 0;
        EXPECT_EQ(steps.calls_of_rounds()[round],
                  (DeviceCalls{.graphs = 1,
                               .launches = is_cut && counts_launches ? 1 : 0,
                               .copies = has_masks ? 1 : 0,
                               .events = 1}))
            << round;
      }
    }
  }
}

// What was forwarded and never chosen leaves nothing behind.
TEST_F(DecodeStepsTest, AStepThatIsGivenUpIsNotRun) {
  const auto agent = load(true);
  MaskedSteps steps(*agent);
  const auto expected = steps.run(true);
  testing::DrivenSequence sequence;
  sequence.tokens = {9, 9};
  sequence.blocks = {1};
  scheduler::StepPlan plan;
  plan.changes.started.push_back(testing::start_of(sequence, 0));
  plan.rows.push_back({.slot = 0, .first_position = 1, .num_tokens = 1, .num_logits = 1});
  plan.num_tokens = plan.num_logits = 1;
  ASSERT_TRUE(agent->forward(plan));
  expect_same_bits(steps.run(true), expected);
}

}  // namespace
}  // namespace lmtp

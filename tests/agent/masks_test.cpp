// Masks that arrive between forward() and choose(), on a CPU and on a device.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "agent_driver.h"
#include "bit_cases.h"
#include "device_under_test.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using scheduler::RowMask;
using State = RowMask::State;

class MasksTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const auto source =
        testing::folder_source(testing::source_dir() + "/tests/goldens/checkpoints/untied-f32");
    agent_ = testing::load_agent(source, 1, kernels::WeightType::kF32,
                                 GetParam() ? &testing::device_under_test() : nullptr);
    const auto config = model::load_model_config(source);
    vocab_size_ = config->vocab_size;
    words_ = (static_cast<std::size_t>(vocab_size_) + 31) / 32;
    for (int i = 0; i < 3; ++i) {
      testing::DrivenSequence& sequence = sequences_[i];
      sequence.id = static_cast<SequenceId>(i) + 1;
      sequence.tokens = {1, 2, 3 + i};
      sequence.num_prompt = 3;
      sequence.blocks = {1 + i};
      sequence.params.temperature = 1.0F;
      sequence.params.top_logprobs = 3;
      sequence.params.seed = 5;
    }
    sequences_[1].params.repetition_penalty = 1.3F;
  }

  // The prompts of all three, or their last tokens again.
  scheduler::StepPlan plan(bool as_decodes) const {
    scheduler::StepPlan plan;
    for (int slot = 0; slot < 3; ++slot) {
      plan.changes.started.push_back(testing::start_of(sequences_[slot], slot));
      plan.rows.push_back({.slot = slot,
                           .first_position = as_decodes ? 2 : 0,
                           .num_tokens = as_decodes ? 1 : 3,
                           .num_logits = 1});
      plan.num_tokens += plan.rows.back().num_tokens;
      ++plan.num_logits;
    }
    return plan;
  }

  std::vector<scheduler::RowResult> run(bool as_decodes, const std::vector<RowMask>& masks) {
    const auto result = agent_->execute(plan(as_decodes), masks);
    EXPECT_TRUE(result.ok());
    return result->rows;
  }

  std::unique_ptr<scheduler::ModelAgent> agent_;
  int vocab_size_ = 0;
  std::size_t words_ = 0;
  testing::DrivenSequence sequences_[3];
};

INSTANTIATE_TEST_SUITE_P(CpuAndDevice, MasksTest, ::testing::Bool());

TEST_P(MasksTest, OneThatAllowsAllHasTheBitsOfNone) {
  const std::vector<std::uint32_t> all(words_, ~0U);
  for (const bool as_decodes : {false, true}) {
    const auto free = run(as_decodes, {});
    const auto masked = run(as_decodes, {RowMask{}, {State::kReady, all.data()}, RowMask{}});
    for (std::size_t i = 0; i < 3; ++i) testing::expect_same_bits(masked[i].tokens, free[i].tokens);
  }
}

// Its log probability is the one before the mask.
TEST_P(MasksTest, OneTokenThatIsAllowedIsDrawn) {
  for (const bool as_decodes : {false, true}) {
    const auto free = run(as_decodes, {});
    for (const TokenLogprob& wanted : free[1].tokens[0].top_logprobs) {
      std::vector<std::uint32_t> one(words_);
      one[static_cast<std::size_t>(wanted.token) / 32] = 1U << (wanted.token % 32);
      const auto masked = run(as_decodes, {RowMask{}, {State::kReady, one.data()}, RowMask{}});
      EXPECT_EQ(masked[1].tokens[0].token, wanted.token);
      EXPECT_EQ(masked[1].tokens[0].logprob, wanted.logprob);
      testing::expect_same_bits(masked[0].tokens, free[0].tokens);
      testing::expect_same_bits(masked[2].tokens, free[2].tokens);
    }
  }
}

TEST_P(MasksTest, OnesThatAllowNothingOrFailAreTheErrorsOfTheirRows) {
  const std::vector<std::uint32_t> none(words_);
  for (const bool as_decodes : {false, true}) {
    const auto free = run(as_decodes, {});
    const auto masked =
        run(as_decodes, {{State::kReady, none.data()},
                         RowMask{},
                         {.state = State::kFailed, .error = {ErrorCode::kConstraint, "no rule"}}});
    EXPECT_TRUE(masked[0].error.has_value());
    testing::expect_same_bits(masked[1].tokens, free[1].tokens);
    ASSERT_TRUE(masked[2].error.has_value());
    EXPECT_EQ(masked[2].error->message, "no rule");
  }
}

TEST_P(MasksTest, ALateRowIsSkippedAndComputedAgain) {
  for (const bool as_decodes : {false, true}) {
    const auto free = run(as_decodes, {});
    const auto masked = run(as_decodes, {{.state = State::kLate}, RowMask{}, RowMask{}});
    EXPECT_TRUE(masked[0].skipped);
    EXPECT_TRUE(masked[0].tokens.empty());
    testing::expect_same_bits(masked[1].tokens, free[1].tokens);
    testing::expect_same_bits(run(true, {})[0].tokens, free[0].tokens);
  }
}

}  // namespace
}  // namespace lmtp

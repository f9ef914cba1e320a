// Rows whose masks were late: they are planned again, and give what they would have given.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <variant>
#include <vector>

#include "fake_agent.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp {
namespace {

using scheduler::RowMask;
using testing::FakeAgent;

TEST(SkippedRowsTest, GiveTheSameTokensLater) {
  constexpr int kStreams = 6;
  constexpr int kTokens = 20;
  std::mt19937 generator(3);
  scheduler::SchedulerOptions options;
  options.vocab_size = testing::FakeAgentOptions{}.vocab_size;
  options.num_blocks = 12;
  options.context_length = 100;
  options.batch.max_tokens = 16;
  options.debug.check_invariants = true;
  scheduler::Scheduler scheduler(options);
  testing::FakeAgentOptions agent_options;
  agent_options.num_blocks = options.num_blocks;
  FakeAgent agent(agent_options);
  std::map<StreamId, std::vector<TokenId>> prompts;
  std::map<StreamId, std::vector<TokenId>> tokens;
  for (StreamId id = 0; id < kStreams; ++id) {
    auto sequence = std::make_unique<scheduler::Sequence>();
    sequence->key = {1, id};
    for (int i = 0; i < 5 + 9 * id; ++i) sequence->tokens.push_back(i + 7 * id);
    prompts[id] = sequence->tokens;
    sequence->num_prompt = sequence->length();
    sequence->params.max_tokens = kTokens;
    scheduler.add(std::move(sequence));
  }
  int num_skipped = 0;
  int num_steps = 0;
  while (!scheduler.idle()) {
    ASSERT_LT(++num_steps, 10'000);
    const scheduler::StepPlan& plan = scheduler.plan();
    ASSERT_FALSE(plan.empty());
    std::vector<RowMask> masks(plan.rows.size());
    for (std::size_t i = 0; i < masks.size(); ++i) {
      if (plan.rows[i].num_logits == 0 || generator() % 3 != 0) continue;
      masks[i].state = RowMask::State::kLate;
      ++num_skipped;
    }
    for (const auto& event : scheduler.commit(*agent.execute(plan, masks))) {
      tokens[event.key.stream].push_back(std::get<TokenEvent>(event.entry).token);
    }
    scheduler.check_invariants();
  }
  EXPECT_GT(num_skipped, 20);
  for (StreamId id = 0; id < kStreams; ++id) {
    EXPECT_EQ(tokens[id], FakeAgent::expected_tokens(prompts[id], kTokens, 1000)) << id;
  }
}

}  // namespace
}  // namespace lmtp

#include "usual_steps.h"

#include <algorithm>

#include "kernels/attention.h"
#include "step_graphs.h"

namespace lmtp::agent {
namespace {

constexpr int kSplitsMax = 4;
constexpr int kLongRowsMax = 8;  // of several splits

// `num_rows` sequences, each with num_tokens tokens behind first_position others.
scheduler::StepPlan plan_of(int num_rows, int first_position, int num_tokens, int num_groups) {
  const int length = first_position + num_tokens;
  scheduler::StepPlan plan;
  for (int slot = 0; slot < num_rows; ++slot) {
    scheduler::SlotStart& start = plan.changes.started.emplace_back();
    start.slot = slot;
    start.tokens.assign(static_cast<std::size_t>(length), 0);
    const auto num_runs = static_cast<std::size_t>((length + kBlockSize - 1) / kBlockSize);
    start.blocks.assign(num_runs * static_cast<std::size_t>(num_groups), 0);
    plan.rows.push_back({.slot = slot,
                         .first_position = first_position,
                         .num_tokens = num_tokens,
                         .num_logits = 1});
  }
  plan.num_tokens = num_rows * num_tokens;
  plan.num_logits = num_rows;
  return plan;
}

}  // namespace

std::vector<scheduler::StepPlan> usual_steps(const BatchLimits& batch, int context_length,
                                             int num_groups) {
  std::vector<scheduler::StepPlan> plans;
  for (int splits = 1; splits <= kSplitsMax; splits *= 2) {
    // The shortest context that is padded to so many.
    const int position = splits / 2 * kernels::kAttentionSplit;
    const int rows_max = splits == 1 ? batch.rows_max() : std::min(batch.rows_max(), kLongRowsMax);
    if (position >= context_length) break;
    for (int rows = 1; rows < 2 * rows_max; rows *= 2) {
      plans.push_back(plan_of(std::min(rows, rows_max), position, 1, num_groups));
    }
  }
  const int tokens_max = std::min({kGraphTokensMax, batch.max_tokens, context_length});
  for (int tokens = 2; tokens <= tokens_max; tokens = padded_tokens(tokens) + 1) {
    plans.push_back(plan_of(1, 0, tokens, num_groups));
  }
  for (int rows = 1; rows < 2 * batch.rows_max(); rows *= 2) {
    plans.push_back(plan_of(std::min(rows, batch.rows_max()), 0, 1, num_groups));
    plans.back().waits_for_masks = true;
  }
  return plans;
}

}  // namespace lmtp::agent

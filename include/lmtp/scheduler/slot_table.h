// SlotTable: what is known of running sequences where plans are executed.
#pragma once

#include <cstddef>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/base/ids.h"
#include "lmtp/scheduler/step_plan.h"
#include "lmtp/scheduler/token_counts.h"

namespace lmtp::scheduler {

struct SlotState {
  StreamKey key;
  int adapter = 0;
  // Without those that steps drew which were not collected yet. With the drafts of such a step.
  std::vector<TokenId> tokens;
  // [runs, groups of KvLayout]: those of run i hold tokens [i * kBlockSize, (i + 1) * kBlockSize).
  // Where no token of a group's window is left, kNullBlock or what was there.
  std::vector<BlockId> blocks;
  SamplingParams params;
  TokenCounts counts;  // kept by whoever needs it
};

// The tokens that a row draws.
struct SlotDraw {
  int slot = -1;     // none
  int position = 0;  // of the first
  int num_scored = 0;
  int num_drafts = 0;
};

// Owner: a ModelAgent; one thread.
class SlotTable {
 public:
  // Begins a plan. REQUIRES: those before it have been applied; where it has drafts, append() has
  // been called for them, too.
  void apply(const StepPlan& plan) {
    const SlotChanges& changes = plan.changes;
    for (const int slot : changes.ended) {
      if (is_in_use(slot)) slots_[index(slot)] = {};
    }
    for (const SlotStart& start : changes.started) {
      LMTP_CHECK(start.slot >= 0, start.slot);
      if (index(start.slot) >= slots_.size()) slots_.resize(index(start.slot) + 1);
      slots_[index(start.slot)] = {.key = start.key,
                                   .adapter = start.adapter,
                                   .tokens = start.tokens,
                                   .blocks = start.blocks,
                                   .params = start.params,
                                   .counts = {}};
    }
    for (const auto& [slot, tokens] : changes.tokens) {
      std::vector<TokenId>& known = at(slot).tokens;
      known.insert(known.end(), tokens.begin(), tokens.end());
    }
    for (const auto& [slot, at_index, block] : changes.blocks) {
      std::vector<BlockId>& blocks = at(slot).blocks;
      const auto to = static_cast<std::size_t>(at_index);
      LMTP_CHECK(to <= blocks.size(), slot, at_index, blocks.size());
      if (to == blocks.size()) blocks.emplace_back();
      blocks[to] = block;
    }
    for (const SlotBias& bias : changes.biases) at(bias.slot).params.logit_bias = bias.logit_bias;
    auto draft = plan.drafts.begin();
    for (const PlanRow& row : plan.rows) {
      if (row.num_drafts == 0) continue;
      std::vector<TokenId>& tokens = at(row.slot).tokens;
      tokens.insert(tokens.end(), draft, draft + row.num_drafts);
      draft += row.num_drafts;
    }
  }

  // What each row of the plan draws: `draws` is for append(), once the step is collected.
  static void list_draws(const StepPlan& plan, std::vector<SlotDraw>& draws) {
    draws.clear();
    for (const PlanRow& row : plan.rows) {
      draws.push_back({.slot = row.draws() ? row.slot : -1,
                       .position = row.first_position + row.num_tokens - row.num_drafts,
                       .num_scored = row.num_scored,
                       .num_drafts = row.num_drafts});
    }
  }
  // The tokens that a step drew are known now, and so are the drafts among them: the refused ones
  // are forgotten, and what was drawn after them leaves the result. What was drawn after the end of
  // a sequence, or after a row that was skipped, is passed over.
  void append(const std::vector<SlotDraw>& draws, StepResult& result) {
    LMTP_CHECK(draws.size() == result.rows.size(), draws.size(), result.rows.size());
    for (std::size_t i = 0; i < draws.size(); ++i) {
      RowResult& row = result.rows[i];
      const SlotDraw& draw = draws[i];
      if (!is_in_use(draw.slot) || row.error || row.skipped || row.held) continue;
      std::vector<TokenId>& tokens = slots_[index(draw.slot)].tokens;
      if (static_cast<int>(tokens.size()) != draw.position + draw.num_drafts) continue;
      auto known = tokens.begin() + draw.position;
      auto drawn = row.tokens.begin() + draw.num_scored;
      while (known != tokens.end() && *known == drawn->token && drawn + 1 != row.tokens.end()) {
        ++known;
        ++drawn;
      }
      tokens.erase(known, tokens.end());
      tokens.push_back(drawn->token);
      row.tokens.erase(drawn + 1, row.tokens.end());
    }
  }

  // REQUIRES: a sequence runs there.
  SlotState& at(int slot) {
    LMTP_CHECK(is_in_use(slot), slot, slots_.size());
    return slots_[index(slot)];
  }
  const SlotState& at(int slot) const {
    LMTP_CHECK(is_in_use(slot), slot, slots_.size());
    return slots_[index(slot)];
  }

 private:
  static std::size_t index(int slot) { return static_cast<std::size_t>(slot); }
  bool is_in_use(int slot) const {
    return slot >= 0 && index(slot) < slots_.size() && !slots_[index(slot)].tokens.empty();
  }

  std::vector<SlotState> slots_;
};

}  // namespace lmtp::scheduler

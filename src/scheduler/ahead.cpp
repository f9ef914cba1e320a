// The part of Scheduler that plans a step while the one before it is executed. It plans as always,
// from where each sequence will be then (Sequence::in_flight).
#include <algorithm>
#include <cstddef>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"
#include "stream_end.h"
#include "token_budget.h"

namespace lmtp::scheduler {

bool Scheduler::has_waiting() const {
  return std::ranges::any_of(waiting_, [](const Sequence* s) { return !s->is_held; });
}

// Waiting sequences come first where one may have a place and blocks, and where
// preempt_for_shares() would look at them.
bool Scheduler::may_plan_ahead() const {
  if (!has_waiting()) return true;
  if (num_running() < max_running() && !has_refused_) return false;
  if (is_claim_step(step_ + 1)) return false;
  return !has_shares_beyond_part() ||
         std::ranges::none_of(waiting_, [&](Sequence* s) { return may_claim(*s, step_ + 1); });
}

const StepPlan& Scheduler::plan_ahead(const StepLimits& limits) {
  Planned& now = current();
  LMTP_CHECK(in_step_ && !now.plan.empty() && ahead().plan.empty() && !drafts_.is_on());
  ahead().clear();
  if (!may_plan_ahead()) return ahead().plan;
  ++step_;
  for (std::size_t i = 0; i < now.sequences.size(); ++i) {
    if (now.sequences[i] == nullptr) continue;
    const PlanRow& row = now.plan.rows[i];
    now.sequences[i]->in_flight = {.row = static_cast<int>(i),
                                   .num_tokens = row.num_tokens,
                                   .num_logits = row.num_logits,
                                   .draws = row.draws()};
  }
  making_ = &ahead();
  lacks_blocks_ = false;
  plan_decodes();
  divide(limits);
  plan_prefills();
  making_ = nullptr;
  for (Sequence* sequence : now.sequences) {
    if (sequence != nullptr) sequence->in_flight = {};
  }
  if (lacks_blocks_) ahead().clear();
  if (ahead().plan.empty()) {
    --step_;
  } else {
    send_changes(ahead().plan);
  }
  return ahead().plan;
}

// Whether what the row in flight gives leaves something to plan behind it.
bool Scheduler::may_continue(const Sequence& sequence) const {
  const RowInFlight& row = sequence.in_flight;
  if (sequence.is_held || (sequence.is_controlled && row.draws)) return false;
  if (row.row < 0) return true;
  const bool is_last = row.draws && sequence.length_ahead() >= num_tokens_max(sequence);
  return !is_last && !ends_withholding(sequence);
}

// The sequence does not go on from where the plan ahead continues it.
bool Scheduler::void_row_ahead(const Sequence& sequence) {
  bool had_row = false;
  for (Sequence*& planned : ahead().sequences) {
    if (planned != &sequence) continue;
    planned = nullptr;
    had_row = true;
  }
  return had_row;
}

}  // namespace lmtp::scheduler

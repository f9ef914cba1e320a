// The part of Scheduler that plans a step while the one before it is executed. It plans as always,
// from where each sequence will be then (Sequence::in_flight).
#include <algorithm>
#include <cstddef>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::scheduler {

bool Scheduler::has_waiting() const {
  return std::ranges::any_of(waiting_, [](const Sequence* s) { return !s->is_held; });
}

// Waiting sequences come first where one may have a place and blocks, and where
// preempt_for_shares() would look at them.
bool Scheduler::may_plan_ahead() const {
  if (!has_waiting()) return true;
  if (num_running() < max_running() && !has_refused_) return false;
  if (FairShares::is_claim_step(step_ + 1)) return false;
  return !shares_.has_crowd(num_running()) || std::ranges::none_of(waiting_, [&](Sequence* s) {
    return shares_.may_claim(*s, step_ + 1);
  });
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
  budget_.divide(limits, making_->plan.num_tokens, waiting_, running_, step_);
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

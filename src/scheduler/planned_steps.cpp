#include "lmtp/scheduler/planned_steps.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::scheduler {

PlannedSteps::Planned& PlannedSteps::begin() {
  LMTP_CHECK(!is_under_way_);
  is_under_way_ = true;
  ++number_;
  making_ = &current();
  making_->clear();
  return *making_;
}

PlannedSteps::Planned& PlannedSteps::begin_ahead() {
  const Planned& now = current();
  LMTP_CHECK(is_under_way_ && !now.plan.empty() && ahead().plan.empty());
  ++number_;
  for (std::size_t i = 0; i < now.sequences.size(); ++i) {
    if (now.sequences[i] == nullptr) continue;
    const PlanRow& row = now.plan.rows[i];
    now.sequences[i]->in_flight = {.row = static_cast<int>(i),
                                   .num_tokens = row.num_tokens,
                                   .num_logits = row.num_logits,
                                   .draws = row.draws()};
  }
  making_ = &ahead();
  making_->clear();
  lacks_blocks_ = false;
  return *making_;
}

void PlannedSteps::end_making() {
  if (!is_making_ahead()) {
    making_ = nullptr;
    return;
  }
  making_ = nullptr;
  for (Sequence* sequence : current().sequences) {
    if (sequence != nullptr) sequence->in_flight = {};
  }
  if (lacks_blocks_) ahead().clear();
  if (ahead().plan.empty()) --number_;
}

void PlannedSteps::remove_row(const Sequence& sequence) {
  const auto at = std::ranges::find(making_->sequences, &sequence);
  if (at == making_->sequences.end()) return;
  StepPlan& plan = making_->plan;
  const auto row = plan.rows.begin() + (at - making_->sequences.begin());
  plan.num_tokens -= row->num_tokens;
  plan.num_logits -= row->num_logits;
  plan.rows.erase(row);
  making_->sequences.erase(at);
}

bool PlannedSteps::discard_planned_row(const Sequence& sequence) {
  bool had_row = false;
  for (Sequence*& planned : ahead().sequences) {
    if (planned != &sequence) continue;
    planned = nullptr;
    had_row = true;
  }
  return had_row;
}

void PlannedSteps::advance() {
  current().clear();
  if (ahead().plan.empty()) return;
  current_ = 1 - current_;
  is_under_way_ = true;
}

}  // namespace lmtp::scheduler

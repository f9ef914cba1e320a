// PlannedSteps: the step that is being planned or executed, and the one ahead of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// A plan is made between begin() or begin_ahead() and end_making(). Steps are numbered; a plan
// ahead that stays empty has no number.
//
// Owner: the Scheduler; its thread. Keeps the memory of plans for the next ones.
class PlannedSteps {
 public:
  struct Planned {
    StepPlan plan;
    // Those of the rows. Null where one has ended, or was set back, since the plan was made.
    std::vector<Sequence*> sequences;
    std::vector<BlockId> copy_sources;  // of the plan's copies; pinned until the step is over

    void clear() {
      plan.clear();
      sequences.clear();
      copy_sources.clear();
    }
  };

  // The number of the last step that was planned.
  std::int64_t number() const { return number_; }
  // Whether a step is being planned or executed.
  bool is_under_way() const { return is_under_way_; }
  Planned& current() { return plans_[current_]; }
  const Planned& current() const { return plans_[current_]; }
  Planned& ahead() { return plans_[1 - current_]; }
  const Planned& ahead() const { return plans_[1 - current_]; }

  // REQUIRES: no step is under way.
  Planned& begin();
  // Marks the rows of the current step as in flight (Sequence::in_flight).
  // REQUIRES: it is under way, and nothing is planned ahead.
  Planned& begin_ahead();
  // The plan at hand is complete.
  void end_making();

  // The plan at hand. REQUIRES: there is one.
  Planned& making() { return *making_; }
  bool is_making_ahead() const { return making_ == &ahead(); }
  void add_row(Sequence& sequence, const PlanRow& row) {
    StepPlan& plan = making_->plan;
    plan.rows.push_back(row);
    making_->sequences.push_back(&sequence);
    plan.num_tokens += row.num_tokens;
    plan.num_logits += row.num_logits;
    if (sequence.mask_source != nullptr && row.draws()) plan.waits_for_masks = true;
  }
  // Nothing happens where the sequence has no row in the plan at hand.
  void remove_row(const Sequence& sequence);
  // A row of the plan at hand needs blocks that only a preemption frees. Nothing is planned ahead
  // then.
  void note_lack_of_blocks() { lacks_blocks_ = true; }

  // The sequence does not go on from where the step ahead continues it. Whether it had a row there.
  bool discard_planned_row(const Sequence& sequence);

  // The current step is over, or was empty.
  void end() { is_under_way_ = false; }
  // What is planned ahead becomes the current step. REQUIRES: end() was called.
  void advance();

 private:
  Planned plans_[2];
  int current_ = 0;
  Planned* making_ = nullptr;
  std::int64_t number_ = 0;
  bool is_under_way_ = false;
  bool lacks_blocks_ = false;
};

}  // namespace lmtp::scheduler

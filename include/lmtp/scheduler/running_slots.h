// RunningSlots: which sequence runs in which slot, and what the next plan has to say about slots.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// What happens to a slot between two plans is collected and sent with the next plan. A sequence
// that starts is sent whole, as it is then, so nothing else is noted of it before that.
//
// Owner: the Scheduler; its thread. The sequences outlive their stay in a slot.
class RunningSlots {
 public:
  // The first plan ends all slots: an agent may have executed the plans of another scheduler.
  explicit RunningSlots(int num_slots);

  // REQUIRES: a slot is free, and the sequence has none.
  void take(Sequence& sequence);
  // What has not been sent of the sequence is dropped. Nothing happens where it has no slot.
  void leave(Sequence& sequence);
  // Sends the whole sequence anew, in another slot if that is the next free one.
  // REQUIRES: it has a slot.
  void restart(Sequence& sequence) {
    leave(sequence);
    take(sequence);
  }

  // Tokens that were put at the sequence's end without being drawn.
  void note_tokens(const Sequence& sequence, std::span<const TokenId> tokens);
  // The sequence's blocks of run `index` are new, or others than before.
  void note_block(const Sequence& sequence, std::size_t index);
  // Another SamplingParams::logit_bias.
  void note_bias(const Sequence& sequence);

  // Moves everything noted into the plan. REQUIRES: plan.changes is empty.
  void send(StepPlan& plan);

  // Aborts unless exactly these run here. For tests and debug builds.
  void check(std::span<Sequence* const> running) const;

 private:
  SlotChanges changes_;           // not sent yet
  std::vector<int> free_;         // the next one last
  std::vector<Sequence*> slots_;  // null: free
};

}  // namespace lmtp::scheduler

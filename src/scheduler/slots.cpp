// The part of Scheduler that gives slots to running sequences, and notes what an agent is to know
// of them and of blocks.
#include <cstddef>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::scheduler {

// What was noted since the last plan, with the values of what has begun to run.
void Scheduler::send_changes(StepPlan& plan) {
  std::swap(plan.changes, changes_);  // the plan's were cleared
  for (SlotStart& start : plan.changes.started) {
    Sequence& sequence = *slots_[static_cast<std::size_t>(start.slot)];
    start.key = sequence.key;
    start.adapter = sequence.adapter;
    start.tokens = sequence.tokens;
    start.blocks = sequence.blocks;
    start.params = sequence.params;
    sequence.is_slot_known = true;
  }
  send_moves(plan);
}

// Before the plan's own copies: what those read may have come from the host.
void Scheduler::send_moves(StepPlan& plan) {
  std::size_t at = 0;
  for (const cache::BlockMove& move : prefix_cache_.moves()) {
    plan.copies.insert(plan.copies.begin() + static_cast<std::ptrdiff_t>(at++),
                       {move.from, move.to, kBlockSize});
    counters_.num_swapped_out += move.to > pool_.num_total() ? 1 : 0;
  }
  prefix_cache_.clear_moves();
}

void Scheduler::take_slot(Sequence& sequence) {
  LMTP_CHECK(!free_slots_.empty() && sequence.slot < 0, sequence.id, sequence.slot);
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[static_cast<std::size_t>(sequence.slot)] = &sequence;
  changes_.started.emplace_back().slot = sequence.slot;
}

// What has not been said of it does not matter any more.
void Scheduler::leave_slot(Sequence& sequence) {
  if (sequence.slot < 0) return;
  const int slot = std::exchange(sequence.slot, -1);
  sequence.is_slot_known = false;
  const auto is_its = [slot](const auto& change) { return change.slot == slot; };
  std::erase_if(changes_.started, is_its);
  std::erase_if(changes_.tokens, is_its);
  std::erase_if(changes_.blocks, is_its);
  std::erase_if(changes_.biases, is_its);
  changes_.ended.push_back(slot);
  slots_[static_cast<std::size_t>(slot)] = nullptr;
  free_slots_.push_back(slot);
}

// A new block, or one that takes the place of another.
void Scheduler::set_block(Sequence& sequence, std::size_t index, BlockId block) {
  if (index == sequence.blocks.size()) sequence.blocks.emplace_back();
  sequence.blocks[index] = block;
  if (sequence.is_slot_known) {
    changes_.blocks.push_back({sequence.slot, static_cast<int>(index), block});
  }
}

}  // namespace lmtp::scheduler

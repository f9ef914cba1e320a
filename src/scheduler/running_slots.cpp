#include "lmtp/scheduler/running_slots.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::scheduler {

RunningSlots::RunningSlots(int num_slots) : slots_(static_cast<std::size_t>(num_slots)) {
  for (int slot = num_slots; slot-- > 0;) free_.push_back(slot);
  changes_.ended = free_;
}

void RunningSlots::take(Sequence& sequence) {
  LMTP_CHECK(!free_.empty() && sequence.slot < 0, sequence.id, sequence.slot);
  sequence.slot = free_.back();
  free_.pop_back();
  slots_[static_cast<std::size_t>(sequence.slot)] = &sequence;
  changes_.started.emplace_back().slot = sequence.slot;
}

void RunningSlots::leave(Sequence& sequence) {
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
  free_.push_back(slot);
}

void RunningSlots::note_tokens(const Sequence& sequence, std::span<const TokenId> tokens) {
  if (!sequence.is_slot_known) return;
  changes_.tokens.push_back({sequence.slot, {tokens.begin(), tokens.end()}});
}

void RunningSlots::note_block(const Sequence& sequence, std::size_t index) {
  if (!sequence.is_slot_known) return;
  const int num_groups = sequence.blocks.num_groups();
  for (int group = 0; group < num_groups; ++group) {
    changes_.blocks.push_back({sequence.slot, static_cast<int>(index) * num_groups + group,
                               sequence.blocks.in_group(index, group)});
  }
}

void RunningSlots::note_bias(const Sequence& sequence) {
  changes_.biases.push_back({sequence.slot, sequence.params.logit_bias});
}

void RunningSlots::send(StepPlan& plan) {
  std::swap(plan.changes, changes_);  // keeps the memory of both
  for (SlotStart& start : plan.changes.started) {
    Sequence& sequence = *slots_[static_cast<std::size_t>(start.slot)];
    start.key = sequence.key;
    start.adapter = sequence.adapter;
    start.tokens = sequence.tokens;
    start.blocks = sequence.blocks.ids();
    start.params = sequence.params;
    sequence.is_slot_known = true;
  }
}

void RunningSlots::check(std::span<Sequence* const> running) const {
  LMTP_CHECK(free_.size() + running.size() == slots_.size(), free_.size(), running.size());
  for (const Sequence* sequence : running) {
    LMTP_CHECK(slots_.at(static_cast<std::size_t>(sequence->slot)) == sequence, sequence->slot);
    const auto is_its = [&](const SlotStart& start) { return start.slot == sequence->slot; };
    LMTP_CHECK(sequence->is_slot_known || std::ranges::any_of(changes_.started, is_its),
               sequence->id);
  }
}

}  // namespace lmtp::scheduler

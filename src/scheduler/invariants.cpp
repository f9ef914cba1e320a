// What must hold between two steps.
#include <unordered_map>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"
#include "sequence_rows.h"

namespace lmtp::scheduler {

void Scheduler::check_invariants() const {
  prefix_cache_.check_invariants();
  LMTP_CHECK(score_cache().num_bytes() <= score_cache().num_bytes_max(), score_cache().num_bytes());
  adapters_.check(running_);
  LMTP_CHECK(steps_.current().copy_sources.empty());
  int num_suspended = 0;
  int num_held = 0;
  for (const auto& [key, sequence] : sequences_) {
    LMTP_CHECK(sequence->num_prompt + sequence->num_emitted <= sequence->length(), sequence->id);
    num_held += sequence->is_held ? 1 : 0;
    if (sequence->status != SequenceStatus::kSuspended) continue;
    ++num_suspended;
    LMTP_CHECK(sequence->account == nullptr, sequence->id);
    LMTP_CHECK(sequence->blocks.empty() && sequence->num_computed == 0, sequence->id);
  }
  LMTP_CHECK(sequences_.num_held() == num_held, sequences_.num_held(), num_held);
  LMTP_CHECK(this->num_suspended() == num_suspended, num_waiting(), running_.size(), num_suspended);
  for (const Sequence* sequence : waiting()) {
    LMTP_CHECK(sequence->status == SequenceStatus::kWaiting && sequence->slot < 0, sequence->id);
    LMTP_CHECK(sequence->blocks.empty() && sequence->num_computed == 0, sequence->id);
  }
  slots_.check(running_);
  std::unordered_map<BlockId, int> references;
  for (const Sequence* sequence : running_) {
    LMTP_CHECK(sequence->in_flight.row < 0, sequence->id);
    LMTP_CHECK(sequence->status == SequenceStatus::kRunning, sequence->id);
    LMTP_CHECK(num_remaining(*sequence) >= 1, sequence->id, sequence->num_computed);
    LMTP_CHECK(sequence->blocks.size() >= cache::blocks_for(sequence->num_computed), sequence->id);
    check_blocks(*sequence);
    for (const BlockId block : sequence->blocks.ids()) {
      if (block != kNullBlock) ++references[block];
    }
  }
  for (const auto& [block, count] : references) {
    LMTP_CHECK(pool_.num_refs(block) == count, block, pool_.num_refs(block), count);
  }
  const int num_pinned = pool_.num_pinned() + pool_.stubs().pinned;
  LMTP_CHECK(num_pinned == static_cast<int>(references.size()), num_pinned, references.size());
}

// Each group has what the next token sees, and has passed what lies before.
void Scheduler::check_blocks(const Sequence& sequence) const {
  const cache::SequenceBlocks& blocks = sequence.blocks;
  LMTP_CHECK(blocks.num_groups() == options_.kv_layout.num_groups, sequence.id);
  for (int group = 0; group < blocks.num_groups(); ++group) {
    LMTP_CHECK(blocks.first(group) <= options_.kv_layout.first_block(group, sequence.num_computed),
               sequence.id, group, blocks.first(group));
    for (int i = 0; i < blocks.size(); ++i) {
      const BlockId block = blocks.in_group(static_cast<std::size_t>(i), group);
      LMTP_CHECK((block == kNullBlock) == (i < blocks.first(group)), sequence.id, group, i);
      if (block == kNullBlock) continue;
      const bool indexed = i < blocks.num_indexed();
      LMTP_CHECK(prefix_cache_.is_indexed(block) == indexed, sequence.id, i, block);
      if (!indexed) continue;
      const BlockId of_node = prefix_cache_.in_group(blocks[static_cast<std::size_t>(i)], group);
      LMTP_CHECK(of_node == block, sequence.id, group, i, of_node);
    }
  }
}

}  // namespace lmtp::scheduler

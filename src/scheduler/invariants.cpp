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
    for (int i = 0; i < sequence->blocks.size(); ++i) {
      const BlockId block = sequence->blocks[static_cast<std::size_t>(i)];
      ++references[block];
      const bool indexed = i < sequence->blocks.num_indexed();
      LMTP_CHECK(prefix_cache_.is_indexed(block) == indexed, sequence->id, i, block);
    }
  }
  for (const auto& [block, count] : references) {
    LMTP_CHECK(pool_.num_refs(block) == count, block, pool_.num_refs(block), count);
  }
  LMTP_CHECK(pool_.num_pinned() == static_cast<int>(references.size()), pool_.num_pinned(),
             references.size());
}

}  // namespace lmtp::scheduler

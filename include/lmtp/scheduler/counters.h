// The scheduler's counters, since its start.
#pragma once

#include <cstdint>

namespace lmtp::scheduler {

struct SchedulerCounters {
  std::int64_t num_tokens_computed = 0;  // tokens that went through the model
  std::int64_t num_prompt_tokens = 0;    // of admitted requests
  std::int64_t num_cached_tokens = 0;    // of those, found in the prefix cache
  std::int64_t num_partial_hits = 0;     // requests whose cached prefix ended inside a block
  std::int64_t num_generated_tokens = 0;
  std::int64_t num_forced_tokens = 0;    // of those, by RowResult::forced
  std::int64_t num_accepted_drafts = 0;  // of those, by PlanRow::num_drafts
  std::int64_t num_refused_drafts = 0;   // of num_tokens_computed: the other drafts
  std::int64_t num_scored_tokens = 0;
  std::int64_t num_cached_scores = 0;  // of those, from the score cache
  std::int64_t num_preemptions = 0;
  std::int64_t num_swapped_out = 0;    // blocks that went to the host
  std::int64_t num_swapped_in = 0;     // blocks that came from there
  std::int64_t num_host_hits = 0;      // admissions for which some did
  std::int64_t num_adapter_loads = 0;  // adapters whose weights were written to blocks
};

}  // namespace lmtp::scheduler

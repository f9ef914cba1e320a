// SchedulerOptions: the settings of a Scheduler, which all its parts read.
#pragma once

#include <cstdint>
#include <vector>

#include "lmtp/base/batch_limits.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/kv_layout.h"
#include "lmtp/scheduler/counters.h"
#include "lmtp/scheduler/debug_options.h"

namespace lmtp::scheduler {

// REQUIRES of each number what its comment says; Scheduler's constructor checks it.
struct SchedulerOptions {
  int num_blocks = 0;                  // of the pool, kNullBlock included
  int num_host_blocks = 0;             // for what the pool has no place; 0 where there are groups
  KvLayout kv_layout;                  // of the blocks
  int context_length = 0;              // the pool must hold one such sequence: see min_blocks
  std::int64_t score_cache_bytes = 0;  // >= 0: of log probabilities that are kept
  BatchLimits batch;                   // of a step
  int max_drafts = 0;                  // >= 0: of a sequence in a step; then none is planned ahead
  int vocab_size = 0;                  // >= 1: bits of masks beyond it do not count
  std::vector<TokenId> eos_ids;
  DebugOptions debug;
  SchedulerCounters counters;  // to count on from
};

}  // namespace lmtp::scheduler

// DraftPolicy: which tokens may be drawn next, and how many of them a step tries.
#pragma once

#include <cstdint>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/scheduler/options.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// A draft goes through the model with the last known token of its sequence; where it is what is
// drawn, it needs no step of its own. docs/speculation.md has the limits.
//
// Owner: the Scheduler; its thread. `options` outlives it.
class DraftPolicy {
 public:
  explicit DraftPolicy(const SchedulerOptions& options) : options_(options) {}

  bool is_on() const { return options_.max_drafts > 0; }

  // The number of drafts that a plan may have besides those it has.
  int room(const StepPlan& plan) const;
  // Appends drafts for a row that draws, at most `room`, and returns how many. 0 where a controller
  // or min_tokens decide by each token what may come, or nothing is found; with a mask those alone
  // that come where it allows anything.
  // REQUIRES: room >= 1; `step` is the number of the plan.
  int append(const Sequence& sequence, int room, std::int64_t step,
             const cache::PrefixCache& prefixes, std::vector<TokenId>& drafts) const;

  // Counts a committed row. A stream whose drafts are accepted gets more of them, one whose first
  // is refused pauses. REQUIRES: 0 <= num_accepted <= row.num_drafts.
  void count(Sequence& sequence, const PlanRow& row, int num_accepted, std::int64_t step);

 private:
  const SchedulerOptions& options_;
  int credit_ = 0;  // what refused drafts may still cost
};

}  // namespace lmtp::scheduler

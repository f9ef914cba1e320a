// MaskPool: computes which tokens the rows of a plan may draw, on threads of its own, while the
// forward pass runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/scheduler/scheduler.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::engine {

// Owner: an Engine; all calls from its thread.
class MaskPool {
 public:
  explicit MaskPool(int vocab_size);
  // Waits for the masks that its threads are computing.
  ~MaskPool();
  MaskPool(const MaskPool&) = delete;
  MaskPool& operator=(const MaskPool&) = delete;

  // Begins the masks of these rows; one that was late is kept while it is of use. The threads are
  // started with the first mask that a source does not compute itself, and sleep where there is
  // none. REQUIRES: the plan's sequences have all their tokens.
  void begin(const scheduler::StepPlan& plan, const scheduler::Scheduler& scheduler);

  // Waits until all are computed that were not late before, or for so long. One for each row
  // of the last begin()'s plan, or empty if there are none; valid until the next begin().
  std::span<const scheduler::RowMask> wait_for(int wait_ms);

  struct Counts {
    std::int64_t num_masks = 0;  // that wait_for() was called for
    std::int64_t num_late = 0;   // of those
    std::chrono::nanoseconds waited{0};
  };
  const Counts& counts() const { return counts_; }

  // Of the rows whose masks wait_for() last gave: what is put behind the tokens that they drew.
  void add_forced(scheduler::StepResult& result) const;

 private:
  struct Job;
  struct Shared;

  std::shared_ptr<Job> make_job(const scheduler::Sequence& sequence);
  static void end(Shared& shared, Job& job, Result<void> done);
  void drop_unused(const scheduler::Scheduler& scheduler);
  void work();

  const std::size_t num_words_;
  std::unordered_map<StreamKey, std::shared_ptr<Job>, StreamKeyHash> jobs_;
  std::vector<std::shared_ptr<Job>> of_row_;  // null: none
  std::vector<scheduler::RowMask> masks_;
  Counts counts_;
  std::vector<runtime::Thread> threads_;
  const std::shared_ptr<Shared> shared_;
  runtime::Condition has_work_;
  std::deque<std::shared_ptr<Job>> queue_;  // guarded by the mutex, as Job::state
  bool stopping_ = false;                   // likewise
};

}  // namespace lmtp::engine

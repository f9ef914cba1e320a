// MaskPool: computes which tokens the rows of a plan may draw, on threads of its own, while the
// forward pass runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::engine {

// Owner: an Engine; all calls from its thread.
class MaskPool {
 public:
  explicit MaskPool(int vocab_size);
  // Waits for the masks that are being computed.
  ~MaskPool();
  MaskPool(const MaskPool&) = delete;
  MaskPool& operator=(const MaskPool&) = delete;

  // Begins the masks of the plan's rows that draw a token and whose sequences have a MaskSource;
  // one that was late in the plan before is kept. False: there are none. The threads are started
  // with the first mask, and sleep where there is none.
  bool begin(const scheduler::StepPlan& plan);

  // Waits until all are computed that were not late before, or until the deadline. One for each row
  // of the last begin()'s plan, or empty if there are none; valid until the next begin().
  std::span<const scheduler::RowMask> wait(std::chrono::steady_clock::time_point deadline);

 private:
  struct Job;

  void work();

  const std::size_t num_words_;
  std::unordered_map<StreamKey, std::shared_ptr<Job>, StreamKeyHash> jobs_;
  std::vector<std::shared_ptr<Job>> of_row_;  // null: none
  std::vector<scheduler::RowMask> masks_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable done_;
  std::deque<std::shared_ptr<Job>> queue_;  // guarded by mutex_, as Job::state
  bool stopping_ = false;                   // likewise
};

}  // namespace lmtp::engine

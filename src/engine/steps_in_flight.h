// StepsInFlight: the steps that an agent has begun and not finished; two where it runs ahead.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "engine_trace.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/scheduler/model_agent.h"
#include "lmtp/scheduler/scheduler.h"
#include "lmtp/scheduler/step_plan.h"
#include "mask_pool.h"

namespace lmtp::engine {

struct StartedStep {
  const scheduler::StepPlan* plan = nullptr;  // until its commit
  int num_tokens = 0;
  int num_rows = 0;
  int num_decodes = 0;  // rows of one token, drafts aside
  int num_drafts = 0;   // of the tokens
  int num_moves = 0;    // of whole blocks, from and to the host
  runtime::Clock::time_point since;
  Result<void> begun = Error{ErrorCode::kInternal, "was not begun"};  // or why it cannot go on
  bool is_ahead = false;
  bool is_chosen = false;  // by an agent that runs ahead
};

// Owner: an Engine; its thread.
class StepsInFlight {
 public:
  // trace: outlives it.
  StepsInFlight(int vocab_size, int mask_wait_ms, EngineTrace& trace)
      : mask_wait_ms_(mask_wait_ms), trace_(trace), masks_(vocab_size) {}

  bool empty() const { return num_steps_ == 0; }
  const StartedStep& oldest() const { return steps_[oldest_]; }
  const StartedStep& newest() const { return steps_[(oldest_ + num_steps_ - 1) % kStepsMax]; }
  // Whether the oldest step, and no other, waits for what may be drawn.
  bool waits_for_masks(const scheduler::ModelAgent& agent) const {
    return agent.runs_ahead() && !oldest().is_chosen;
  }

  // Begins a step, behind the one that is in flight. A failure is reported by finish(): the earlier
  // one goes on. Its masks are computed from now on, or once the earlier step is committed:
  // begin_masks().
  void start(scheduler::ModelAgent& agent, const scheduler::StepPlan& plan,
             const scheduler::Scheduler& scheduler);
  void begin_masks(const scheduler::Scheduler& scheduler);
  // Waits for the masks of the oldest step, not longer than mask_wait_ms.
  void choose(scheduler::ModelAgent& agent);

  // Waits for the result of the oldest step, which is result() then. REQUIRES: it does not wait for
  // masks.
  struct Finished {
    StartedStep step;
    Result<void> done;
  };
  Finished finish(scheduler::ModelAgent& agent);
  const MaskPool::Counts& mask_counts() const { return masks_.counts(); }
  scheduler::StepResult& result() { return result_; }
  void drop_all() { num_steps_ = 0; }

 private:
  Result<void> forward(scheduler::ModelAgent& agent, const scheduler::StepPlan& plan);
  Result<void> choose(scheduler::ModelAgent& agent, std::span<const scheduler::RowMask> masks);
  Result<void> collect(scheduler::ModelAgent& agent, const StartedStep& step);
  std::span<const scheduler::RowMask> wait_for_masks();

  const int mask_wait_ms_;
  EngineTrace& trace_;
  MaskPool masks_;
  static constexpr int kStepsMax = 2;
  StartedStep steps_[kStepsMax];  // in turn
  int oldest_ = 0;
  int num_steps_ = 0;
  scheduler::StepResult result_;
};

}  // namespace lmtp::engine

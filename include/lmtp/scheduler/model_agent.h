// ModelAgent: carries out a StepPlan on a model. The seam between scheduling and numerics: module
// agent implements it, tests put a null agent behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// What the rest of the engine must know of a loaded model's memory.
struct AgentInfo {
  std::string device;         // "cpu", "cuda:0"
  std::string dtype;          // "float32"
  int num_blocks = 0;         // KV blocks, block 0 (never handed out) included
  std::int64_t kv_bytes = 0;  // of all blocks together
  std::int64_t num_parameters = 0;
  bool takes_kv_at_once = false;  // or as blocks are first written
  // What a user should know of the weights: parts left out, tensors that --force passed over.
  std::vector<std::string> notes = {};
};

// Owner: the Engine. All calls from the engine's thread.
class ModelAgent {
 public:
  virtual ~ModelAgent() = default;

  virtual AgentInfo info() const = 0;

  // Runs one step. REQUIRES: plan is not empty and its blocks are < info().num_blocks.
  // An error means that the step as a whole failed: no KV written by it may be relied upon.
  // REQUIRES: nothing that was started is unfinished.
  // Exceptions of libraries below are caught inside and returned as errors.
  virtual Result<StepResult> execute(const StepPlan& plan) = 0;

  // execute() in two halves, between which the caller may do other work. A start() that fails is
  // not finished. REQUIRES, but for what runs_ahead() allows: what start() was given stays as it is
  // until finish() returns, and nothing else is started in between.
  virtual Result<void> start(const StepPlan& plan) {
    started_ = &plan;
    return {};
  }
  virtual Result<StepResult> finish() { return execute(*started_); }

  // True where start() takes all that it needs from the plan, and a second step may be started
  // before the first one is finished, whose rows follow those of the first (PlanRow::follows).
  // finish() then gives the older one; where that fails, the younger is forgotten. Where the second
  // cannot be started, the first goes on.
  virtual bool runs_ahead() const { return false; }

  // After an error of a step: no step will succeed any more, because the device is lost. Another
  // agent may, once this one is gone.
  virtual bool is_lost() const { return false; }

 private:
  const StepPlan* started_ = nullptr;
};

// Told how far the loading is, in percent [0, 100], from any thread of the loading. False: nobody
// waits any more; the loading should end soon with an error.
using LoadProgress = std::function<bool(int percent)>;

}  // namespace lmtp::scheduler

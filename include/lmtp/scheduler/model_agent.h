// ModelAgent: executes a StepPlan on a model. The seam between scheduling and numerics: module
// agent implements it, tests use a null agent.
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

// What the engine must know of a loaded model.
struct AgentInfo {
  std::string device;         // "cpu", "cuda:0"
  std::string dtype;          // "float32"
  int num_blocks = 0;         // KV blocks, block 0 (never handed out) included
  std::int64_t kv_bytes = 0;  // of all blocks together
  std::int64_t num_parameters = 0;
  bool takes_kv_at_once = false;  // false: as blocks are first written
  // What a user should know of the weights: parts left out, tensors that --force passed over.
  std::vector<std::string> notes = {};
  // 16 hexadecimal digits: agents that have the same ones give the same bits.
  std::string numerics = {};
};

// Owner: the Engine. All calls from the engine's thread.
class ModelAgent {
 public:
  virtual ~ModelAgent() = default;

  virtual AgentInfo info() const = 0;

  // Runs one step. REQUIRES: plan is not empty and its blocks are < info().num_blocks.
  // An error means that the step as a whole failed: no KV written by it may be relied upon.
  // REQUIRES: no started step is unfinished.
  // Exceptions of libraries below are caught inside and returned as errors.
  virtual Result<StepResult> execute(const StepPlan& plan) = 0;

  // execute() in two halves, between which the caller may do other work. After a start() that
  // fails, finish() is not called. REQUIRES, unless runs_ahead(): the plan and its sequences stay
  // unchanged until finish() returns, and no other step is started in between.
  virtual Result<void> start(const StepPlan& plan) {
    started_ = &plan;
    return {};
  }
  virtual Result<StepResult> finish() { return execute(*started_); }

  // True if start() copies all that it needs from the plan, and a second step may be started before
  // the first is finished; its rows take their input from the first's (PlanRow::input_row).
  // finish() then returns the older step's result; if that is an error, the younger step is
  // dropped. If the second cannot be started, the first goes on.
  virtual bool runs_ahead() const { return false; }

  // After an error of a step: no step will succeed any more, because the device is lost. A new
  // agent may succeed once this one is destroyed.
  virtual bool is_lost() const { return false; }

 private:
  const StepPlan* started_ = nullptr;
};

// Reports the progress of a loading, in percent [0, 100]; called on any thread of the loading.
// False: the loading is cancelled and should end soon with an error.
using LoadProgress = std::function<bool(int percent)>;

}  // namespace lmtp::scheduler

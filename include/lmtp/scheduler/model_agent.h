// ModelAgent: executes a StepPlan on a model. The seam between scheduling and numerics: module
// agent implements it, tests use a null agent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/kv_layout.h"
#include "lmtp/base/result.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// Who computes a share of a model.
struct RankInfo {
  std::string device;              // "cpu", "cuda:1"
  std::int64_t weights_bytes = 0;  // that it holds
};

// What the engine must know of a loaded model.
struct AgentInfo {
  std::string device;         // "cpu", "cuda:0"
  std::string dtype;          // "float32"
  std::string kv_dtype = {};  // of keys and values: "bfloat16", "fp8_e4m3"
  int num_blocks = 0;         // KV blocks, block 0 (never handed out) included
  std::int64_t kv_bytes = 0;  // of all blocks together
  KvLayout kv_layout = {};    // of the blocks
  // Blocks of the host, for what is evicted, numbered after those of the pool; and how long one
  // takes to come back.
  int num_host_blocks = 0;
  std::chrono::nanoseconds fetch_time{0};
  std::int64_t num_parameters = 0;
  bool takes_kv_at_once = false;  // false: as blocks are first written
  int num_widened = 0;            // quantised matrices that are kept as `dtype`
  // What a user should know of the weights: parts left out, tensors that --force passed over.
  std::vector<std::string> notes = {};
  // 16 hexadecimal digits: agents that have the same ones give the same bits.
  std::string numerics = {};
  std::vector<RankInfo> ranks = {};  // one, unless the model is divided (tensor parallelism)

  // Tokens that the blocks hold; where windows free some, those of streams of `longest` tokens.
  std::int64_t kv_tokens(int longest) const {
    const std::int64_t num_usable = num_blocks - 1;
    if (kv_layout.num_groups == 1) return num_usable * kBlockSize;
    return num_usable * longest / std::max<std::int64_t>(1, kv_layout.num_held_max(longest));
  }
};

// A step is forward, choose, collect. Owner: the Engine. All calls from the engine's thread.
// Exceptions of libraries below are caught inside and returned as errors.
class ModelAgent {
 public:
  virtual ~ModelAgent() = default;

  virtual AgentInfo info() const = 0;

  // Runs the forward pass, up to the logits; where the plan does not wait for masks, it may leave
  // that to choose(), which is to follow at once. After an error the step is over, and no KV
  // written by it may be relied upon. REQUIRES: plan is not empty and its blocks are <
  // info().num_blocks; the step before was chosen, has failed or is given up, and unless
  // runs_ahead() it was collected. The plan stays unchanged until choose() returns. Its changes
  // follow those of all plans before it; after an error of forward(), choose() or collect() the
  // next plan that is not made ahead starts whatever runs anew.
  virtual Result<void> forward(const StepPlan& plan) = 0;

  // Chooses the tokens of the step that was forwarded. masks: one for each row of its plan, or
  // empty: no row has one. They may be computed while the forward pass runs. After an error as
  // forward().
  virtual Result<void> choose(std::span<const RowMask> masks) = 0;

  // Writes the result of the oldest step that was chosen over `result`, whose memory is used again.
  // An error means that the step as a whole failed, with one that was started after it.
  // REQUIRES: there is one.
  virtual Result<void> collect(StepResult& result) = 0;

  // True if forward() and choose() only queue work, and a second step may be started before the
  // first is collected: its rows may take their input from the first's (PlanRow::input_row). If the
  // second cannot be started, the first goes on.
  virtual bool runs_ahead() const { return false; }

  // After an error of a step: no step will succeed any more, because the device is lost. A new
  // agent may succeed once this one is destroyed.
  virtual bool is_lost() const { return false; }

  // The first two parts of a step, and all three, where masks are known before.
  Result<void> start(const StepPlan& plan, std::span<const RowMask> masks = {}) {
    if (Result<void> done = forward(plan); !done.ok()) return done;
    return choose(masks);
  }
  Result<StepResult> execute(const StepPlan& plan, std::span<const RowMask> masks = {}) {
    if (const Result<void> done = start(plan, masks); !done.ok()) return done.error();
    return collect();
  }
  Result<StepResult> collect() {
    StepResult result;
    if (const Result<void> done = collect(result); !done.ok()) return done.error();
    return result;
  }
};

// Reports the progress of a loading, in percent [0, 100]; called on any thread of the loading.
// False: the loading is cancelled and should end soon with an error.
using LoadProgress = std::function<bool(int percent)>;

}  // namespace lmtp::scheduler

// DebugOptions: what only tests set; the server uses the defaults. One struct for scheduler, engine
// and agent, each of which reads its own part.
#pragma once

namespace lmtp::kernels {
struct Backend;
}

namespace lmtp::scheduler {

struct DebugOptions {
  int max_chunk_tokens = 0;       // >= 0: of one sequence in a step; 0: no limit but the step's
  int max_prefill_ms = 100;       // >= 0: of prefill beside decodes, by measure; 0: by tokens alone
  int max_alone_ms = 300;         // >= 0: of a step without decodes, by measure; 0: by tokens alone
  bool run_ahead = true;          // use ModelAgent::runs_ahead(), where the agent has it
  bool eager_drafts = false;      // as many as fit, whatever became of those before
  bool check_invariants = false;  // after each step; aborts if they do not hold
  bool step_graphs = true;        // on a device: launch repeated steps as graphs
  int graphs_at_load_ms = 2000;   // >= 0: the time for those of usual steps, beforehand; 0: none
  // Must outlive the agent; null: kernels::cpu_backend(), or kernels::cuda::backend().
  const kernels::Backend* backend = nullptr;
  bool kv_groups = true;         // false: all layers share blocks, which windows do not free
  int rank_timeout_ms = 60'000;  // >= 1: the longest that a rank waits for the others in a sum
};

}  // namespace lmtp::scheduler

// What tests alone set: other ways for steps to go, and checks of them. The kernels' backend is
// only passed on here.
#pragma once

namespace lmtp::kernels {
struct Backend;
}

namespace lmtp::scheduler {

struct DebugOptions {
  int max_chunk_tokens = 0;  // >= 0: of one sequence in a step; 0: as many as the step has room for
  bool run_ahead = true;     // with an agent that does: a step is started before the last ended
  bool check_invariants = false;  // after each step; aborts where they do not hold
  bool decode_graphs = true;      // on a device: steps that come again are one launch
  // Of the agent, which it outlives; null: kernels::cpu_backend(), or kernels::cuda::backend().
  const kernels::Backend* backend = nullptr;
};

}  // namespace lmtp::scheduler

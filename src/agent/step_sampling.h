// From rows of logits to a step's result, on the host.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/matrix.h"
#include "kernels/worker_pool.h"
#include "lmtp/sampling/sampler.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::agent {

// What a row of logits is computed for: a row of the plan, and an index in that row's results.
struct LogitTarget {
  int plan_row = 0;
  int index = 0;
};

// The targets of a plan, in the order of ModelInput::logit_rows, and a result of its shape.
void list_targets(const scheduler::StepPlan& plan, std::vector<LogitTarget>& targets,
                  scheduler::StepResult& result);

// The position in its sequence of the token that a target's row of logits predicts.
inline int next_position(const scheduler::PlanRow& row, const LogitTarget& target) {
  return row.first_position + row.num_tokens - row.num_logits + target.index + 1;
}

// Owner: an agent; all calls from one thread.
class StepSampling {
 public:
  // `backend`: of a CPU. It and `pool` must outlive this.
  StepSampling(const kernels::Backend& backend, kernels::WorkerPool& pool, int vocab_size);

  // logits: [targets.size(), vocab_size] in host memory, edited in place. A row with a
  // NaN or no possible token becomes the error of its plan row alone.
  void choose(const scheduler::StepPlan& plan, std::span<const LogitTarget> targets,
              kernels::Matrix<float> logits, scheduler::StepResult& result);

 private:
  kernels::WorkerPool& pool_;
  std::vector<sampling::Sampler> samplers_;  // one for each worker
  std::vector<std::string> errors_;          // of the targets, while choose runs
};

}  // namespace lmtp::agent

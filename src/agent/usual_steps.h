// Plans of steps that nearly every server runs, so that their graphs are there before the first
// request is.
#pragma once

#include <vector>

#include "lmtp/base/batch_limits.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::agent {

// One plan for each shape: decodes of all powers of two of rows, few of them also over 2 and 4
// splits of attention; then one prompt of each padded size; then decodes that wait for masks. Each
// starts its sequences anew, with token 0 everywhere and all in block 0, which belongs to no
// stream. context_length: of the longest stream.
std::vector<scheduler::StepPlan> usual_steps(const BatchLimits& batch, int context_length,
                                             int num_groups = 1);

}  // namespace lmtp::agent

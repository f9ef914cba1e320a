// From a StepPlan to the packed arrays that a model takes.
#pragma once

#include <vector>

#include "lmtp/model/model_input.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::agent {

// Fills `input`, reusing its memory. REQUIRES: each row's tokens and blocks exist in its
// sequence, num_tokens >= 1, 0 <= num_logits <= num_tokens.
void build_input(const scheduler::StepPlan& plan, model::ModelInput& input);

// Fills `copies` with the plan's block copies, as build_input() does for input.copies.
void build_copies(const scheduler::StepPlan& plan, std::vector<kernels::KvCopy>& copies);

}  // namespace lmtp::agent

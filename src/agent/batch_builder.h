// From a StepPlan to the packed arrays that a model takes.
#pragma once

#include "lmtp/model/model_input.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::agent {

// Fills `input`, whose memory is used again. REQUIRES: each row's tokens and blocks exist in its
// sequence, num_tokens >= 1, 0 <= num_logits <= num_tokens. The id of a token that another row
// draws (PlanRow::follows) is 0.
void build_input(const scheduler::StepPlan& plan, model::ModelInput& input);

// Adds sequences of one token in block 0, whose results nobody looks at, until there are num_rows
// rows with logits. REQUIRES: every sequence has one token, and its logits are wanted.
void pad_decode_input(int num_rows, model::ModelInput& input);

}  // namespace lmtp::agent

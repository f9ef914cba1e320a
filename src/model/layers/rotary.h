// Rotary embedding of a step's queries and keys.
#pragma once

#include "kernels/rotary.h"
#include "step_context.h"

namespace lmtp::model {

// x: [m, num_heads * head_dim], in place.
inline void rotate(const StepContext& step, int head_dim, kernels::Matrix<float> x) {
  kernels::rotary(step.stream,
                  {.x = x, .head_dim = head_dim, .cosines = step.cosines, .sines = step.sines});
}

}  // namespace lmtp::model

// Rotary embedding of a step's queries and keys.
#pragma once

#include "kernels/rotary.h"
#include "step_context.h"

namespace lmtp::model {

// x: [m, num_heads * head_dim], in place.
inline void rotate(const StepContext& step, int rotary, int head_dim, kernels::Matrix<float> x) {
  const RotaryTable& table = step.rotaries[static_cast<std::size_t>(rotary)];
  kernels::rotary(step.stream,
                  {.x = x, .head_dim = head_dim, .cosines = table.cosines, .sines = table.sines});
}

}  // namespace lmtp::model

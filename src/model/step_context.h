// What a layer needs besides its input.
#pragma once

#include "kernels/stream.h"
#include "lmtp/model/model_input.h"
#include "workspace.h"

namespace lmtp::model {

struct StepContext {
  kernels::Stream& stream;
  const InputArrays& input;
  Workspace& workspace;
  kernels::Matrix<const float> cosines = {};  // [m, rotary_dim / 2] f32; empty: no rotary embedding
  kernels::Matrix<const float> sines = {};    // as cosines
};

}  // namespace lmtp::model

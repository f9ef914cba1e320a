// What the parts of a model need besides their input.
#pragma once

#include "kernels/stream.h"
#include "lmtp/model/communicator.h"
#include "lmtp/model/model_input.h"
#include "workspace.h"

namespace lmtp::model {

struct StepContext {
  kernels::Stream& stream;
  Workspace& workspace;
  Communicator& communicator;
  InputArrays input = {};                     // of a forward pass; else empty
  kernels::Matrix<const float> cosines = {};  // [m, rotary_dim / 2] f32; empty: no rotary embedding
  kernels::Matrix<const float> sines = {};    // as cosines
};

}  // namespace lmtp::model

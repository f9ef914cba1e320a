// What the parts of a model need besides their input.
#pragma once

#include <span>

#include "kernels/matrix.h"
#include "kernels/stream.h"
#include "lmtp/model/communicator.h"
#include "lmtp/model/model_input.h"
#include "workspace.h"

namespace lmtp::model {

// The angles of a step's positions.
struct RotaryTable {
  kernels::Matrix<const float> cosines;  // [m, rotary_dim / 2] f32
  kernels::Matrix<const float> sines;    // as cosines
};

struct StepContext {
  kernels::Stream& stream;
  Workspace& workspace;
  Communicator& communicator;
  InputArrays input = {};                      // of a forward pass; else empty
  std::span<const RotaryTable> rotaries = {};  // of ModelConfig::rotaries
  int group = 0;                               // of the running layer: whose blocks it has
};

}  // namespace lmtp::model

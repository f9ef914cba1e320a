// What a layer needs besides its input.
#pragma once

#include "kernels/stream.h"
#include "lmtp/model/model_input.h"
#include "workspace.h"

namespace lmtp::model {

struct StepContext {
  kernels::Stream& stream;
  const ModelInput& input;
  Workspace& workspace;
};

}  // namespace lmtp::model

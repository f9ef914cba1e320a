// The step_batch op of CUDA devices.
#pragma once

#include "kernels/step_batch.h"

namespace lmtp::kernels::cuda {

void step_batch(Stream& stream, const StepBatchArgs& args);

}  // namespace lmtp::kernels::cuda

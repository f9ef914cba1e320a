// The ops that begin a step on CUDA devices.
#pragma once

#include "kernels/step_batch.h"

namespace lmtp::kernels::cuda {

void step_batch(Stream& stream, const StepBatchArgs& args);
void drawn_ids(Stream& stream, const DrawnIdsArgs& args);

}  // namespace lmtp::kernels::cuda

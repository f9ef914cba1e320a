// kernels/sample.h on a device.
#pragma once

#include "kernels/sample.h"

namespace lmtp::kernels::cuda {

void sample(Stream& stream, const SampleArgs& args);

}  // namespace lmtp::kernels::cuda

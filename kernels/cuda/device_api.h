// Two implementations, one of which is linked: device_api.cu on the CUDA runtime, and the tests' on
// their emulation.
#pragma once

#include "kernels/device_api.h"

namespace lmtp::kernels::cuda {

const DeviceApi& device_api();

}  // namespace lmtp::kernels::cuda

// Two implementations, one of which is linked: the CUDA runtime's, and that of
// tests/support/cuda_emulation.
#pragma once

#include "kernels/device_api.h"

namespace lmtp::kernels::cuda {

const DeviceApi& device_api();

}  // namespace lmtp::kernels::cuda

// The table of the ops on a device; linked once for nvcc and once for the emulation of the tests.
#pragma once

#include "kernels/backend.h"

namespace lmtp::kernels::cuda {

const Backend& device_backend();

}  // namespace lmtp::kernels::cuda

// kernels/random.h on a device.
#pragma once

#include "kernels/random.h"

namespace lmtp::kernels::cuda {

void fill_random(Stream& stream, const FillRandomArgs& args);

}  // namespace lmtp::kernels::cuda

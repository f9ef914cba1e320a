// kernels/decode_rows.h on a device.
#pragma once

#include "kernels/decode_rows.h"

namespace lmtp::kernels::cuda {

void advance_rows(Stream& stream, const AdvanceRowsArgs& args);

}  // namespace lmtp::kernels::cuda

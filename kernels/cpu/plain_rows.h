// Ops that are the same for all instruction sets: they are few beside a step's products.
#pragma once

#include "kernels/rotary.h"

namespace lmtp::kernels::plain {

void rotary_angles(Stream& stream, const RotaryAnglesArgs& args);

}  // namespace lmtp::kernels::plain

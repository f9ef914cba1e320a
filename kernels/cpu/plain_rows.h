// Ops in plain code for every instruction set: they take little of a step.
#pragma once

#include "kernels/rotary.h"

namespace lmtp::kernels::plain {

void rotary_angles(Stream& stream, const RotaryAnglesArgs& args);

}  // namespace lmtp::kernels::plain

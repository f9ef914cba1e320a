// A linear's prologue and the rounding of its inputs in one launch.
#pragma once

#include "cuda/linear_common.cuh"
#include "kernels/linear.h"

namespace lmtp::kernels::cuda {

// Whether there is a prologue, of rows that this can take: whole stages of inputs, read by vectors.
bool rounds(const LinearPrologue& prologue);

// What the prologue leaves, rounded to bf16 or f16: as launch_round_to_cores() leaves it for so
// many row_tiles, or, with 0, as launch_round_inputs() does. Its y is not written.
// REQUIRES: rounds().
void launch_round_prologue(const LinearPrologue& prologue, ElementType type, int row_tiles,
                           Words4* tiles, StreamHandle stream);

}  // namespace lmtp::kernels::cuda

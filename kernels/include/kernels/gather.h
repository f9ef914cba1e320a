// Selects rows of a matrix: those of a step that need logits.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

struct GatherRowsArgs {
  Matrix<const float> x;  // [n, width] f32
  // [m], each in [0, n), in any order, also repeated; null: all in order
  const std::int32_t* rows = nullptr;
  Matrix<float> y;  // [m, width] f32; must not overlap x
};

// y[i] = x[rows[i]].
void gather_rows(Stream& stream, const GatherRowsArgs& args);

}  // namespace lmtp::kernels

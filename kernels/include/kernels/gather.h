// Rows of a matrix, put next to each other.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

struct GatherRowsArgs {
  Matrix<const float> x;               // [m, width] f32
  const std::int32_t* rows = nullptr;  // [y.rows], each in [0, m)
  Matrix<float> y;                     // [count, width] f32; apart from x
};

// y[i] = x[rows[i]].
void gather_rows(Stream& stream, const GatherRowsArgs& args);

}  // namespace lmtp::kernels

// The gated activation of four neighbouring columns.
#pragma once

#include "cuda/linear_common.cuh"
#include "cuda/row_vectors.cuh"

namespace lmtp::kernels::cuda {

// activation(gate) * up of the columns [c, c + 4); a row is gate | up, of `width` columns each.
__device__ inline Floats4 load_gated(const float* row, std::int64_t c, std::int64_t width,
                                     bool whole, const Activation& activation) {
  Floats4 four = load_columns(row, c, width, whole);
  const Floats4 up = load_columns(row + width, c, width, whole);
  activate_all(activation, four.values);
#pragma unroll
  for (int i = 0; i < 4; ++i) four.values[i] *= up.values[i];
  return four;
}

}  // namespace lmtp::kernels::cuda

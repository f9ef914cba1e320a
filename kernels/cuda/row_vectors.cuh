// Four neighbouring columns of a row at once, by one load or store where the row allows it. Loads
// take no branches, so that those of a thread are in flight together.
#pragma once

#include <device_primitives.cuh>

#include <bit>
#include <cstdint>

#include "kernels/device_types.h"
#include "kernels/matrix.h"

namespace lmtp::kernels::cuda {

// Whether width and alignment allow accesses of 16 bytes to all rows.
template <typename T>
bool has_whole_vectors(const Matrix<T>& rows, std::int64_t width) {
  return width % 4 == 0 && rows.stride % 4 == 0 &&
         std::bit_cast<std::uintptr_t>(rows.data) % 16 == 0;
}

// The columns [c, c + 4), zero beyond the row. `whole`: as has_whole_vectors says; c % 4 == 0.
__device__ inline Floats4 load_columns(const float* row, std::int64_t c, std::int64_t width,
                                       bool whole) {
  Floats4 four;
  if (whole) {
    four = load_where(c < width, reinterpret_cast<const Floats4*>(row + c));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) four.values[i] = load_where(c + i < width, row + c + i);
  }
  return four;
}

__device__ inline void store_columns(float* row, std::int64_t c, std::int64_t width, bool whole,
                                     const Floats4& four) {
  if (whole) {
    if (c < width) store(reinterpret_cast<Floats4*>(row + c), four);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (c + i < width) row[c + i] = four.values[i];
    }
  }
}

}  // namespace lmtp::kernels::cuda

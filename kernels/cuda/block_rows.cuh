// A row is a block's work. Which thread adds what is fixed by the row's width alone, so that a
// row's bits do not depend on its neighbours.
#pragma once

#include <device_primitives.cuh>

#include "kernels/device_types.h"

namespace lmtp::kernels::cuda {

inline constexpr int kRowThreadsMax = 256;

// Threads for a row of that width.
constexpr int row_threads(std::int64_t width) {
  const std::int64_t warps = ceil_divide<std::int64_t>(width, std::int64_t{4} * kWarpSize);
  constexpr std::int64_t kWarpsMax = kRowThreadsMax / kWarpSize;
  return static_cast<int>(warps < kWarpsMax ? warps : kWarpsMax) * kWarpSize;
}

// Shared memory of block_sum.
constexpr std::size_t block_sum_bytes(int threads) {
  return static_cast<std::size_t>(threads / kWarpSize) * sizeof(float);
}

// The sum of all threads' values, in all threads: halves of a warp first, then warps in order.
// `sums`: block_sum_bytes() of shared memory.
__device__ inline float block_sum(float value, float* sums) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  block_barrier();  // the last sum has been read
  if (lane_index() == 0) sums[thread_index() / kWarpSize] = value;
  block_barrier();
  float total = 0.0F;
  for (int warp = 0; warp < num_threads() / kWarpSize; ++warp) total += sums[warp];
  return total;
}

// Columns of a row that a block of (row, part of it) takes, four a thread; the first of them.
inline constexpr std::int64_t kColumnsOfBlock = std::int64_t{4} * kRowThreadsMax;
__device__ inline std::int64_t first_column() {
  return block_index().y * kColumnsOfBlock + std::int64_t{4} * thread_index();
}

// body(c) for the columns of this thread.
template <typename Body>
__device__ void for_columns(std::int64_t width, const Body& body) {
  for (std::int64_t c = thread_index(); c < width; c += num_threads()) body(c);
}

}  // namespace lmtp::kernels::cuda

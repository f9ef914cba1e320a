// A row of logits by all threads of a block, for selection.cuh: loops that keep several loads in
// flight, numbers by which elements are compared, and what all threads have together.
#pragma once

#include <device_primitives.cuh>

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/device_types.h"

namespace lmtp::kernels::cuda {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectWarps = kSelectThreads / kWarpSize;
static_assert(kSelectWarps == kWarpSize);
inline constexpr int kDigitBits = 11;
inline constexpr int kNumDigits = 1 << kDigitBits;
static_assert(kNumDigits == 2 * kSelectThreads);
// Elements that are sorted, at most.
inline constexpr int kCandidatesMax = kSelectThreads;

struct SelectShared {
  std::uint32_t low[kNumDigits];  // of the sums of weights, by digit
  std::uint32_t high[kNumDigits];
  std::uint64_t candidates[kCandidatesMax];   // as ranked() makes them
  std::uint64_t thread_best[kSelectThreads];  // of the elements that for_row() gives each; 0: none
  std::uint64_t warp_sums[kSelectWarps];
  std::uint64_t found_above;
  std::uint64_t found_equal;
  std::int32_t found;
  std::int32_t num_candidates;
  std::int32_t width;  // find_in_order() reads it here, so that nothing waits in registers for that
};

// The greater of two logits has the greater key; -0 and 0 have one.
__device__ inline std::uint32_t key_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0F);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ inline float value_of_key(std::uint32_t key) {
  return std::bit_cast<float>((key >> 31) != 0 ? key & 0x7FFFFFFFU : ~key);
}

// The better of two elements has the greater number: the greater value, then the lower id.
__device__ inline std::uint64_t ranked(float value, std::int32_t id) {
  return std::uint64_t{key_of(value)} << 32 | (0xFFFFFFFFU - static_cast<std::uint32_t>(id));
}
__device__ inline std::int32_t id_of(std::uint64_t candidate) {
  return static_cast<std::int32_t>(0xFFFFFFFFU - static_cast<std::uint32_t>(candidate));
}
__device__ inline float value_of(std::uint64_t candidate) {
  return value_of_key(static_cast<std::uint32_t>(candidate >> 32));
}

struct Row {
  const float* values;
  std::int32_t width;  // in 32 bits: registers count
};

// body(values, id of the first) for batches of the ids first, first + step, ... below `end`; of ids
// beyond, in the last batch, the value is -inf. The loads of a batch are in flight together.
template <int kBatch, typename Body>
__device__ void for_batches(const float* values, std::int32_t first, std::int32_t end,
                            std::int32_t step, const Body& body) {
  for (std::int32_t begin = first; begin < end; begin += kBatch * step) {
    float batch[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      batch[k] = begin + k * step < end ? load(values + begin + k * step) : -INFINITY;
    }
    body(batch, begin);
  }
}

// body(value, id) for ids first, first + step, ... below `end`; kBatch loads are in flight.
template <int kBatch = 8, typename Body>
__device__ void for_range(const float* values, std::int32_t first, std::int32_t end,
                          std::int32_t step, const Body& body) {
  for_batches<kBatch>(values, first, end, step,
                      [&](const float(&batch)[kBatch], std::int32_t begin) {
#pragma unroll
                        for (int k = 0; k < kBatch; ++k) {
                          if (begin + k * step < end) body(batch[k], begin + k * step);
                        }
                      });
}

// body(value, id) for this thread's part of the row.
template <int kBatch = 8, typename Body>
__device__ void for_row(const Row& row, const Body& body) {
  for_range<kBatch>(row.values, thread_index(), row.width, kSelectThreads, body);
}

// body(value, id) for those elements that may weigh something, in any order: of ids first + lane,
// first + step + lane, ... below `end`, of which `first` is the same in a warp. A weight takes some
// sixty instructions and most tokens have none, but few warps have no lane with one. So a lane
// keeps its element until a lane of the warp has two.
template <typename Elements, typename Body>
__device__ void for_weighed(const float* values, std::int32_t first, std::int32_t end,
                            std::int32_t step, const Elements& elements, const Body& body) {
  constexpr int kBatch = 4;
  float waiting = 0.0F;
  std::int32_t waiting_id = -1;
  for (std::int32_t begin = first; begin < end; begin += kBatch * step) {
    const std::int32_t mine = begin + lane_index();
    float batch[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      batch[k] = mine + k * step < end ? load(values + mine + k * step) : NAN;
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const bool may_weigh = elements.may_weigh(batch[k]);
      if (warp_ballot(may_weigh && waiting_id >= 0) != 0) {
        if (waiting_id >= 0) body(waiting, waiting_id);
        waiting_id = -1;
      }
      waiting = may_weigh ? batch[k] : waiting;
      waiting_id = may_weigh ? mine + k * step : waiting_id;
    }
  }
  if (waiting_id >= 0) body(waiting, waiting_id);
}
template <typename Elements, typename Body>
__device__ void for_weighed(const Row& row, const Elements& elements, const Body& body) {
  for_weighed(row.values, thread_index() - lane_index(), row.width, kSelectThreads, elements, body);
}

// The greatest of the lanes' values, in all lanes.
__device__ inline std::uint64_t warp_max(std::uint64_t value) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const std::uint64_t other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// The greatest of all threads' values, in all threads.
__device__ inline std::uint64_t block_max(SelectShared& shared, std::uint64_t value) {
  value = warp_max(value);
  block_barrier();  // the last result has been read
  if (lane_index() == 0) shared.warp_sums[thread_index() / kWarpSize] = value;
  block_barrier();
  return warp_max(shared.warp_sums[lane_index()]);
}

// The sum of the values of the lanes up to and with this one.
__device__ inline std::uint64_t warp_prefix(std::uint64_t value) {
  for (int step = 1; step < kWarpSize; step *= 2) {
    const int lane = lane_index() - step;
    const std::uint64_t before = shuffle(value, lane < 0 ? 0 : lane);
    value += lane < 0 ? 0 : before;
  }
  return value;
}

// The sum of the values of the threads before this one; `total`: of all.
__device__ inline std::uint64_t block_prefix(SelectShared& shared, std::uint64_t value,
                                             std::uint64_t& total) {
  const std::uint64_t with_mine = warp_prefix(value);
  block_barrier();  // the last result has been read
  if (lane_index() == kWarpSize - 1) shared.warp_sums[thread_index() / kWarpSize] = with_mine;
  block_barrier();
  std::uint64_t before = with_mine - value;
  total = 0;
  for (int warp = 0; warp < kSelectWarps; ++warp) {
    before += warp < thread_index() / kWarpSize ? shared.warp_sums[warp] : 0;
    total += shared.warp_sums[warp];
  }
  return before;
}

}  // namespace lmtp::kernels::cuda

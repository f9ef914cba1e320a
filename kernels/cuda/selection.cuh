// Searches in one row by all threads of a block: the elements of the greatest keys, and the place
// at which a sum over them passes a number. What an element's key and weight are, functions of its
// id say. Weights are whole numbers, so that no order of adding matters.
#pragma once

#include <device_primitives.cuh>

#include <bit>
#include <cstdint>

#include "kernels/device_types.h"

namespace lmtp::kernels::cuda {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectWarps = kSelectThreads / kWarpSize;
// A key is searched by digits of 11, 11 and 10 bits, the highest first.
inline constexpr int kDigitBits = 11;
inline constexpr int kNumDigits = 1 << kDigitBits;
static_assert(kNumDigits == 2 * kSelectThreads);

struct SelectShared {
  std::uint64_t sums[kNumDigits];  // of the weights, by digit
  std::uint64_t warp_sums[kSelectWarps];
  std::uint64_t found_above;
  std::uint64_t found_equal;
  std::int64_t found;
};

// The greater of two logits has the greater key; -0 and 0 have one.
__device__ inline std::uint32_t key_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0F);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

// body(id) for this thread's part of the row.
template <typename Body>
__device__ void for_ids(std::int64_t width, const Body& body) {
#pragma unroll 8
  for (std::int64_t id = thread_index(); id < width; id += kSelectThreads) body(id);
}

// The greatest of all threads' values, in all threads.
__device__ inline std::uint64_t block_max(SelectShared& shared, std::uint64_t value) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const std::uint64_t other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  block_barrier();  // the last result has been read
  if (lane_index() == 0) shared.warp_sums[thread_index() / kWarpSize] = value;
  block_barrier();
  for (int warp = 0; warp < kSelectWarps; ++warp) {
    value = shared.warp_sums[warp] > value ? shared.warp_sums[warp] : value;
  }
  return value;
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

// A key, the weight of what has a greater one, and the weight of what has this one.
struct KeyRank {
  std::uint32_t key;
  std::uint64_t above;
  std::uint64_t equal;
};

// The key at which the sum of weights, from the greatest key down, reaches `wanted`. REQUIRES:
// 1 <= wanted <= the sum of all weights.
template <typename KeyOf, typename Weight>
__device__ KeyRank descend(SelectShared& shared, std::int64_t width, std::uint64_t wanted,
                           const KeyOf& key_at, const Weight& weight) {
  KeyRank rank = {0, 0, 0};
  int bits_left = 32;
  while (bits_left > 0) {
    const int shift = bits_left > kDigitBits ? bits_left - kDigitBits : 0;
    const std::uint32_t num_digits = 1U << (bits_left - shift);
    block_barrier();
    shared.sums[2 * thread_index()] = 0;
    shared.sums[2 * thread_index() + 1] = 0;
    block_barrier();
    for_ids(width, [&](std::int64_t id) {
      const std::uint32_t key = key_at(id);
      const bool matches =
          bits_left == 32 || key >> (bits_left % 32) == rank.key >> (bits_left % 32);
      const std::uint64_t mine = matches ? weight(id) : 0;
      if (mine != 0) atomic_add(&shared.sums[(key >> shift) & (num_digits - 1)], mine);
    });
    block_barrier();
    // This thread's two digits, from the greatest down.
    const int upper = kNumDigits - 1 - 2 * thread_index();
    const std::uint64_t first = shared.sums[upper];
    const std::uint64_t second = shared.sums[upper - 1];
    std::uint64_t total = 0;
    const std::uint64_t before = rank.above + block_prefix(shared, first + second, total);
    if (before < wanted && before + first + second >= wanted) {
      const bool in_first = before + first >= wanted;
      shared.found = in_first ? upper : upper - 1;
      shared.found_above = in_first ? before : before + first;
      shared.found_equal = in_first ? first : second;
    }
    block_barrier();
    rank.key |= static_cast<std::uint32_t>(shared.found) << shift;
    rank.above = shared.found_above;
    rank.equal = shared.found_equal;
    bits_left = shift;
  }
  return rank;
}

// The id at which the sum of weights, from id 0 up, passes `target`. A warp sums a contiguous range
// of ids. REQUIRES: target < the sum of all weights.
template <typename Weight>
__device__ std::int64_t find_in_order(SelectShared& shared, std::int64_t width,
                                      std::uint64_t target, const Weight& weight) {
  // In 32 bits, which hold ids: registers count.
  const auto ids = static_cast<std::int32_t>(width);
  const std::int32_t stretch = ceil_divide(ids, kSelectThreads) * kWarpSize;
  const std::int32_t begin = thread_index() / kWarpSize * stretch;
  const std::int32_t end = begin + stretch < ids ? begin + stretch : ids;
  std::uint64_t mine = 0;
  for (std::int32_t id = begin + lane_index(); id < end; id += kWarpSize) mine += weight(id);
  std::uint64_t total = 0;
  std::uint64_t before = block_prefix(shared, mine, total);
  before = shuffle(before, 0);  // of this warp's stretch
  for (std::int32_t first = begin; first < end; first += kWarpSize) {
    const std::int32_t id = first + lane_index();
    const std::uint64_t one = id < end ? weight(id) : 0;
    const std::uint64_t with_mine = before + warp_prefix(one);
    if (with_mine > target && with_mine - one <= target) shared.found = id;
    before = shuffle(with_mine, kWarpSize - 1);
    if (before > target) break;  // here, or before this stretch
  }
  block_barrier();
  return shared.found;
}

// The keys that are kept: those above `key`, and of those at it the ids up to `last`.
struct Kept {
  std::uint32_t key = 0;
  std::int32_t last = 0;

  __device__ bool holds(std::uint32_t mine, std::int64_t id) const {
    return mine > key || (mine == key && id <= last);
  }
};

// Those of the greatest keys, ties by the lowest id, until their weights reach `wanted`. REQUIRES:
// as descend.
template <typename KeyOf, typename Weight>
__device__ Kept keep_until(SelectShared& shared, std::int64_t width, std::uint64_t wanted,
                           const KeyOf& key_at, const Weight& weight) {
  const KeyRank rank = descend(shared, width, wanted, key_at, weight);
  if (rank.above + rank.equal == wanted) {
    return {rank.key, static_cast<std::int32_t>(width - 1)};
  }
  const std::int64_t last =
      find_in_order(shared, width, wanted - rank.above - 1,
                    [&](std::int64_t id) { return key_at(id) == rank.key ? weight(id) : 0; });
  return {rank.key, static_cast<std::int32_t>(last)};
}

}  // namespace lmtp::kernels::cuda

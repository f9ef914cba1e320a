// The names of kernels/cuda/device/device_primitives.cuh, which documents them, on the emulator.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "emulator.h"
#include "kernels/device_types.h"
#include "narrow_floats.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace lmtp::kernels::cuda {

namespace emulation = ::lmtp::cuda_emulation;

inline int thread_index() { return emulation::thread_index(); }
inline int num_threads() { return emulation::num_threads(); }
inline int lane_index() { return thread_index() % kWarpSize; }
inline int warp_index() { return thread_index() / kWarpSize; }
inline Grid block_index() { return emulation::block_index(); }
inline Grid grid_size() { return emulation::grid_size(); }

inline void block_barrier() { emulation::block_barrier(); }
inline void group_barrier(int num_threads) { emulation::group_barrier(num_threads); }
inline void warp_barrier() { emulation::exchange(emulation::Meeting::kBarrier, nullptr, 0); }

template <typename T>
T exchanged(const std::byte* slots, int lane) {
  T value;
  std::memcpy(&value, slots + emulation::kExchangeStride * static_cast<std::size_t>(lane),
              sizeof(value));
  return value;
}

template <typename T>
T shuffle(T value, int lane) {
  const auto* slots = emulation::exchange(emulation::Meeting::kShuffle, &value, sizeof(value));
  return exchanged<T>(slots, lane & (kWarpSize - 1));
}
template <typename T>
T shuffle_of_four(T value, int i) {
  return shuffle(value, lane_index() / 4 * 4 + i);
}
template <typename T>
T shuffle_xor(T value, int mask) {
  const auto* slots = emulation::exchange(emulation::Meeting::kShuffleXor, &value, sizeof(value));
  return exchanged<T>(slots, lane_index() ^ mask);
}
inline std::uint32_t warp_ballot(bool condition) {
  const auto* slots =
      emulation::exchange(emulation::Meeting::kBallot, &condition, sizeof(condition));
  std::uint32_t votes = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    votes |= static_cast<std::uint32_t>(exchanged<bool>(slots, lane)) << lane;
  }
  return votes;
}

inline void grid_dependency_wait() { emulation::grid_dependency_wait(); }

template <typename T>
T* shared_memory() {
  return static_cast<T*>(emulation::shared_memory());
}

template <typename T>
T load(const T* at) {
  emulation::check_aligned(at, alignof(T));
  emulation::bytes_loaded += std::int64_t{sizeof(T)};
  return *at;
}
template <typename T>
T load_where(bool wanted, const T* at) {
  if constexpr (std::is_arithmetic_v<T>) {
    return wanted ? *at : T{};
  } else {
    return wanted ? load(at) : T{};
  }
}
template <typename T>
T load_once_where(bool wanted, const T* at) {
  return load_where(wanted, at);
}
template <typename T>
void store(T* at, const T& v) {
  emulation::check_aligned(at, alignof(T));
  *at = v;
}

inline void copy_async(Words4* to_shared, const Words4* from, bool wanted) {
  emulation::copy_async(to_shared, from, wanted);
}
inline void commit_copies() { emulation::commit_copies(); }
template <int kPending>
void wait_for_copies() {
  emulation::wait_for_copies(kPending);
}

inline std::uint32_t atomic_count(std::uint32_t* at, std::uint32_t last) {
  emulation::count_atomic(at);
  return std::exchange(*at, *at < last ? *at + 1 : 0);
}
template <typename T>
T load_fresh_where(bool wanted, const T* at) {
  return load_where(wanted, at);
}
template <typename T>
T atomic_add(T* at, T value) {
  emulation::count_atomic(at);
  return std::exchange(*at, *at + value);
}

template <typename T>
std::uint16_t round_one(float value);
template <>
inline std::uint16_t round_one<BF16>(float value) {
  return testing::round_to_bf16(value);
}
template <>
inline std::uint16_t round_one<F16>(float value) {
  return testing::round_to_f16(value);
}
template <typename T>
std::uint32_t round_pair(float low, float high) {
  return round_one<T>(low) | static_cast<std::uint32_t>(round_one<T>(high)) << 16;
}
template <typename T>
float widen(std::uint16_t bits);
template <>
inline float widen<BF16>(std::uint16_t bits) {
  return testing::widen_bf16(bits);
}
template <>
inline float widen<F16>(std::uint16_t bits) {
  return testing::widen_f16(bits);
}

inline std::uint32_t lower_twice(std::uint32_t pair) { return (pair & 0xFFFFU) | pair << 16; }
inline std::uint32_t upper_twice(std::uint32_t pair) { return (pair & 0xFFFF0000U) | pair >> 16; }
inline std::uint32_t mask_and_set(std::uint32_t bits, std::uint32_t mask, std::uint32_t set) {
  return (bits & mask) | set;
}

template <typename T>
std::uint32_t fma_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto sum = [&](int shift) {
    const auto number = [shift](std::uint32_t pair) {
      return widen<T>(static_cast<std::uint16_t>(pair >> shift));
    };
    const double exact = std::fma(double{number(a)}, double{number(b)}, double{number(c)});
    const auto rounded = static_cast<float>(exact);
    if (std::isfinite(rounded)) emulation::check_exact(rounded == exact);
    return rounded;
  };
  return round_pair<T>(sum(0), sum(16));
}

inline float exp2_fast(float x) { return std::exp2(x); }
inline float divide_fast(float x, float y) { return x / y; }

// The sum of a product goes through its inputs in order, each product exact and each sum rounded.
// The device adds the products of one instruction in a way of its own, so that bits differ from it,
// but an order of instructions that differs is seen here as there.
template <typename T>
void mma_m16n8k16(float (&c)[4], const Words4& a, std::uint32_t b0, std::uint32_t b1) {
  struct Fragments {  // each element widened once, by the lane that has it
    float a[4][2];
    float b[2][2];
  };
  const auto widen_pair = [](std::uint32_t pair, float(&to)[2]) {
    to[0] = widen<T>(static_cast<std::uint16_t>(pair));
    to[1] = widen<T>(static_cast<std::uint16_t>(pair >> 16));
  };
  Fragments mine;
  for (int i = 0; i < 4; ++i) widen_pair(a.words[i], mine.a[i]);
  widen_pair(b0, mine.b[0]);
  widen_pair(b1, mine.b[1]);
  const auto* slots = emulation::exchange(emulation::Meeting::kMma, &mine, sizeof(mine));
  const int own = lane_index();
  const int g = own / 4;
  const int t = own % 4;
  using Sums = float __attribute__((vector_size(16)));  // as c: two rows of two columns
  Sums rows[16];
  Sums columns[16];
  for (int lane = 0; lane < 4; ++lane) {
    const auto of_row = exchanged<Fragments>(slots, g * 4 + lane);
    const auto of_left = exchanged<Fragments>(slots, 2 * t * 4 + lane);
    const auto of_right = exchanged<Fragments>(slots, (2 * t + 1) * 4 + lane);
    for (int upper = 0; upper < 2; ++upper) {  // which half of the inputs
      for (int i = 0; i < 2; ++i) {
        const int k = upper * 8 + lane * 2 + i;
        const float row = of_row.a[2 * upper][i];
        const float row_below = of_row.a[2 * upper + 1][i];
        const float left = of_left.b[upper][i];
        const float right = of_right.b[upper][i];
        rows[k] = Sums{row, row, row_below, row_below};
        columns[k] = Sums{left, right, left, right};
      }
    }
  }
  Sums sums = {c[0], c[1], c[2], c[3]};
  const int flip = emulation::has_backward_sums() ? 15 : 0;
  for (int k = 0; k < 16; ++k) sums += rows[k ^ flip] * columns[k ^ flip];
  for (int i = 0; i < 4; ++i) c[i] = sums[i];
}

// Exact, so that no order shows; the sum of all is at most 2^31 by what callers require.
inline void mma_m16n8k32(std::int32_t (&c)[4], const Words4& a, std::uint32_t b0,
                         std::uint32_t b1) {
  struct Fragments {
    std::uint32_t a[4];
    std::uint32_t b[2];
  };
  const Fragments mine = {{a.words[0], a.words[1], a.words[2], a.words[3]}, {b0, b1}};
  const auto* slots = emulation::exchange(emulation::Meeting::kMma, &mine, sizeof(mine));
  const int g = lane_index() / 4;
  const int t = lane_index() % 4;
  for (int lane = 0; lane < 4; ++lane) {
    const auto of_row = exchanged<Fragments>(slots, g * 4 + lane);
    for (int column = 0; column < 2; ++column) {
      const auto of_column = exchanged<Fragments>(slots, (2 * t + column) * 4 + lane);
      for (int i = 0; i < 8; ++i) {
        const auto byte = [i](std::uint32_t word) {
          return std::int32_t{static_cast<std::int8_t>(word >> (8 * (i % 4)))};
        };
        const std::int32_t x = byte(of_column.b[i / 4]);
        c[column] += byte(of_row.a[i / 4 * 2]) * x;
        c[2 + column] += byte(of_row.a[i / 4 * 2 + 1]) * x;
      }
    }
  }
}

inline bool has_wgmma() { return emulation::has_wgmma(); }

inline std::size_t shared_bytes_max() { return emulation::shared_bytes_max(); }
inline int num_multiprocessors() { return emulation::num_multiprocessors(); }

template <auto kKernel>
int clusters_at_once(const LaunchShape& shape) {
  return shape.cluster <= emulation::cluster_max() ? num_multiprocessors() / shape.cluster + 1 : 0;
}

template <auto kKernel, typename... Args>
void launch(const LaunchShape& shape, StreamHandle, const Args&... args) {
  emulation::submit(shape, [=] { kKernel(args...); });
}

}  // namespace lmtp::kernels::cuda

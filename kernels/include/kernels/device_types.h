// Types that device code and its callers share, in plain C++ without CUDA headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmtp::kernels::cuda {

// A cudaStream_t; null is the device's default stream.
using StreamHandle = void*;

// Blocks of a launch.
struct Grid {
  int x = 1;
  int y = 1;
  int z = 1;
};

struct LaunchShape {
  Grid grid = {};
  int num_threads = 32;          // of a block, a multiple of 32
  std::size_t shared_bytes = 0;  // of a block
  int cluster = 1;               // blocks along z that run together; more than 1: from 9.0 on
  bool overlaps = true;          // begins before the launch ahead of it has ended, where it can
};

// The types of which tensor cores take products, as tags: kernels hold their elements as bits.
struct BF16 {};
struct F16 {};
// Of keys and values alone (e4m3.h): products take them as BF16.
struct E4M3 {};
struct Int8 {};

// Vectors that one thread loads or stores at once.
struct alignas(8) Words2 {
  std::uint32_t words[2];
};
struct alignas(16) Words4 {
  std::uint32_t words[4];
};
struct alignas(8) Floats2 {
  float values[2];
};
struct alignas(16) Floats4 {
  float values[4];
};

inline constexpr int kWarpSize = 32;
// Blocks that any device runs together.
inline constexpr int kClusterMax = 16;

template <typename T>
constexpr T ceil_divide(T value, T by) {
  return (value + by - 1) / by;
}

}  // namespace lmtp::kernels::cuda

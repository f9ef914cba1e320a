// A row in the registers of a block, and its norms.
#pragma once

#include <device_primitives.cuh>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda/block_rows.cuh"
#include "cuda/row_vectors.cuh"
#include "kernels/norm.h"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {

inline constexpr std::int64_t kVectorColumns = 4;
// Vectors that a thread holds of a row, at most.
inline constexpr int kVectorsMax = kDeviceNormWidthMax / (kVectorColumns * kRowThreadsMax);

// A row as a block holds it: a thread's vector v begins at column 4 (thread + v * threads).
template <int kVectors>
struct HeldRow {
  Floats4 vectors[kVectors];

  __device__ static std::int64_t column(int v) {
    return kVectorColumns * (thread_index() + std::int64_t{v} * num_threads());
  }
  __device__ void load(const float* row, std::int64_t width, bool whole) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) vectors[v] = load_columns(row, column(v), width, whole);
  }
  __device__ void store(float* row, std::int64_t width, bool whole) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) store_columns(row, column(v), width, whole, vectors[v]);
  }
  // The sum of term(x) over the row's columns, in all threads.
  template <typename Term>
  __device__ float sum(std::int64_t width, const Term& term) const {
    float mine = 0.0F;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < 4; ++i) mine += column(v) + i < width ? term(vectors[v].values[i]) : 0.0F;
    }
    return block_sum(mine, shared_memory<float>());
  }
  __device__ void layer_norm(const HeldRow& weight, const HeldRow& bias, std::int64_t width,
                             float epsilon) {
    const float inverse_width = 1.0F / static_cast<float>(width);
    const float mean = sum(width, [](float value) { return value; }) * inverse_width;
    const float squares = sum(width, [&](float value) { return (value - mean) * (value - mean); });
    const float inverse = 1.0F / sqrtf(squares * inverse_width + epsilon);
    change([&](float value, int v, int i) {
      return (value - mean) * inverse * weight.vectors[v].values[i] + bias.vectors[v].values[i];
    });
  }
  __device__ void rms_norm(const HeldRow& weight, std::int64_t width, float epsilon) {
    const float squares = sum(width, [](float value) { return value * value; });
    const float mean = squares * (1.0F / static_cast<float>(width));
    const float inverse = 1.0F / sqrtf(mean + epsilon);
    change(
        [&](float value, int v, int i) { return value * inverse * weight.vectors[v].values[i]; });
  }
  // x = body(x, v, i) for every column.
  template <typename Body>
  __device__ void change(const Body& body) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < 4; ++i) vectors[v].values[i] = body(vectors[v].values[i], v, i);
    }
  }
};

inline bool is_whole(const float* vector) {
  return std::bit_cast<std::uintptr_t>(vector) % 16 == 0;
}

// launch_with(std::integral_constant<int, vectors of a thread>). REQUIRES: kMost are enough.
template <int kMost = kVectorsMax, typename Launch>
void with_vectors(std::int64_t width, const Launch& launch_with) {
  const std::int64_t vectors =
      ceil_divide<std::int64_t>(width, kVectorColumns * row_threads(width));
  LMTP_CHECK(vectors <= kMost, width);
  if (vectors <= 1) {
    launch_with(std::integral_constant<int, 1>());
  } else if (vectors <= 4) {
    launch_with(std::integral_constant<int, 4>());
  } else if (vectors <= 8) {
    launch_with(std::integral_constant<int, 8>());
  } else if constexpr (kMost > 8) {
    launch_with(std::integral_constant<int, kMost>());
  }
}

}  // namespace lmtp::kernels::cuda

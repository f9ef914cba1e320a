// Shared by the kernels of the linear.
#pragma once

#include <device_primitives.cuh>

#include <cmath>
#include <cstdint>

#include "cuda/fragment_tile.h"
#include "cuda/linear.h"

namespace lmtp::kernels::cuda {

struct LinearParams {
  LinearLaunch args;
  int k_tiles = 0;
  Slices slices;
  bool x_aligned = false;  // rows of x can be loaded 16 bytes at a time
  // x rounded, in tiles; of more than 8 rows, or of rows that are not whole tiles.
  const Words4* x_tiles = nullptr;
};

template <Activation kActivation>
__device__ inline float activate(float x) {
  if constexpr (kActivation == Activation::kGeluTanh) {
    // 0.5 x (1 + tanh(u)) = x / (1 + e^-2u)
    const float inner = fmaf(0.044715F, x * x * x, x);
    return divide_fast(x, 1.0F + expf(-1.5957691216057308F * inner));
  } else if constexpr (kActivation == Activation::kGeluErf) {
    return 0.5F * x * (1.0F + erff(0.70710678118654752F * x));
  } else if constexpr (kActivation == Activation::kRelu) {
    return x < 0.0F ? 0.0F : x;
  } else if constexpr (kActivation == Activation::kSilu) {
    return divide_fast(x, 1.0F + expf(-x));
  } else {
    return x;
  }
}

template <Activation kActivation, int kCount>
__device__ void activate_all(float (&values)[kCount]) {
#pragma unroll
  for (float& value : values) value = activate<kActivation>(value);
}

// Branches once for all values.
template <int kCount>
__device__ void activate_all(Activation activation, float (&values)[kCount]) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kGeluTanh:
      activate_all<Activation::kGeluTanh>(values);
      break;
    case Activation::kGeluErf:
      activate_all<Activation::kGeluErf>(values);
      break;
    case Activation::kRelu:
      activate_all<Activation::kRelu>(values);
      break;
    case Activation::kSilu:
      activate_all<Activation::kSilu>(values);
      break;
  }
}

// The bias and the residual of y[row][n]; zero where there is none, or no such element.
__device__ inline float bias_of(const LinearLaunch& args, std::int64_t n) {
  return load_where(args.bias != nullptr && n < args.n, args.bias + n);
}
__device__ inline float residual_of(const LinearLaunch& args, std::int64_t row, std::int64_t n) {
  return load_where(args.residual != nullptr && row < args.m && n < args.n,
                    args.residual + row * args.residual_stride + n);
}

// Writes y[row][n] from the sum of its products, where there is such an element.
__device__ inline void finish(const LinearLaunch& args, std::int64_t row, std::int64_t n, float sum,
                              float bias, float residual) {
  float value[1] = {args.bias != nullptr ? sum + bias : sum};
  activate_all(args.activation, value);
  if (row < args.m && n < args.n) {
    args.y[row * args.y_stride + n] = args.residual != nullptr ? value[0] + residual : value[0];
  }
}
__device__ inline void finish(const LinearLaunch& args, std::int64_t row, std::int64_t n,
                              float sum) {
  finish(args, row, n, sum, bias_of(args, n), residual_of(args, row, n));
}

// The elements [column, column + 4) of a row, zero from `columns` on.
__device__ inline Floats4 load_four(const float* row, std::int64_t column, std::int64_t columns,
                                    bool aligned) {
  if (aligned && column + 4 <= columns) return load(reinterpret_cast<const Floats4*>(row + column));
  Floats4 four;
#pragma unroll
  for (int i = 0; i < 4; ++i) four.values[i] = column + i < columns ? row[column + i] : 0.0F;
  return four;
}

}  // namespace lmtp::kernels::cuda

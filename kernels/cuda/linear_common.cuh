// What the kernels of the linear share.
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
  const Words4* x_tiles =
      nullptr;  // x rounded, in tiles; of more than 8 rows, or rows that are not whole tiles
};

__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kGeluTanh: {
      // 0.5 x (1 + tanh(u)) = x / (1 + e^-2u)
      const float inner = fmaf(0.044715F, x * x * x, x);
      return x / (1.0F + expf(-1.5957691216057308F * inner));
    }
    case Activation::kGeluErf:
      return 0.5F * x * (1.0F + erff(0.70710678118654752F * x));
    case Activation::kRelu:
      return x < 0.0F ? 0.0F : x;
    case Activation::kSilu:
      return x / (1.0F + expf(-x));
  }
  return x;
}

// What y[row][n] takes beside its products; zero where there is none, or no such element.
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
  if (row >= args.m || n >= args.n) {
    return;
  }
  if (args.bias != nullptr) {
    sum += bias;
  }
  sum = activate(args.activation, sum);
  if (args.residual != nullptr) {
    sum += residual;
  }
  args.y[row * args.y_stride + n] = sum;
}
__device__ inline void finish(const LinearLaunch& args, std::int64_t row, std::int64_t n,
                              float sum) {
  finish(args, row, n, sum, bias_of(args, n), residual_of(args, row, n));
}

// The elements [column, column + 4) of a row, zero from `columns` on.
__device__ inline Floats4 load_four(const float* row, std::int64_t column, std::int64_t columns,
                                    bool aligned) {
  if (aligned && column + 4 <= columns) {
    return load(reinterpret_cast<const Floats4*>(row + column));
  }
  Floats4 four;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    four.values[i] = column + i < columns ? row[column + i] : 0.0F;
  }
  return four;
}

}  // namespace lmtp::kernels::cuda

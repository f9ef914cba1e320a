// Shared by the kernels of the linear.
#pragma once

#include <device_primitives.cuh>

#include <cmath>
#include <cstdint>
#include <utility>

#include "cuda/fragment_tile.h"
#include "cuda/linear.h"
#include "cuda/narrow_weight.h"

namespace lmtp::kernels::cuda {

struct LinearParams {
  LinearLaunch args;
  int k_tiles = 0;
  Slices slices;
  bool x_aligned = false;  // rows of x can be loaded 16 bytes at a time
  // x rounded (round_inputs.cuh); of more than 8 rows, or of rows that are not whole tiles.
  const Words4* x_tiles = nullptr;
  bool weight_is_fresh = false;  // written by the launch before
  // Int8 alone: [m] and [n].
  const float* row_scales = nullptr;
  const float* output_scales = nullptr;
  GroupedWeight grouped = {};  // by groups alone
  int slices_each = 0;         // by tiles alone: slices that a block takes
};

// Where the slice ends that begins at this tile of inputs.
__device__ inline int slice_end(const LinearParams& p, int begin) {
  const int end = begin + p.slices.tiles;
  return end < p.k_tiles ? end : p.k_tiles;
}

template <Activation::Kind kKind>
__device__ inline float activate(const Activation& numbers, float x) {
  if constexpr (kKind == Activation::kGeluTanh) {
    // 0.5 x (1 + tanh(u)) = x / (1 + e^-2u)
    const float inner = fmaf(0.044715F, x * x * x, x);
    return divide_fast(x, 1.0F + expf(-1.5957691216057308F * inner));
  } else if constexpr (kKind == Activation::kGeluErf) {
    return 0.5F * x * (1.0F + erff(0.70710678118654752F * x));
  } else if constexpr (kKind == Activation::kClippedGelu) {
    const float gelu = activate<Activation::kGeluErf>(numbers, x);
    return gelu > numbers.limit ? numbers.limit : gelu;
  } else if constexpr (kKind == Activation::kQuickGelu) {
    return divide_fast(x, 1.0F + expf(-1.702F * x));
  } else if constexpr (kKind == Activation::kRelu) {
    return x < 0.0F ? 0.0F : x;
  } else if constexpr (kKind == Activation::kClippedRelu) {
    return x < 0.0F ? 0.0F : x > numbers.limit ? numbers.limit : x;
  } else if constexpr (kKind == Activation::kSquaredRelu) {
    return x < 0.0F ? 0.0F : x * x;
  } else if constexpr (kKind == Activation::kSilu) {
    return divide_fast(x, 1.0F + expf(-x));
  } else if constexpr (kKind == Activation::kXielu) {
    const float line = numbers.slope * x;
    if (x > 0.0F) return fmaf(numbers.above * x, x, line);
    return fmaf(expm1f(fminf(x, numbers.near)) - x, numbers.below, line);
  } else {
    return x;
  }
}

template <Activation::Kind kKind, int kCount>
__device__ void activate_if(const Activation& activation, float (&values)[kCount]) {
  if (activation.kind != kKind) return;
#pragma unroll
  for (float& value : values) value = activate<kKind>(activation, value);
}

template <int kCount, int... kKinds>
__device__ void activate_all(const Activation& activation, float (&values)[kCount],
                             std::integer_sequence<int, kKinds...> /*all*/) {
  (activate_if<static_cast<Activation::Kind>(kKinds)>(activation, values), ...);
}

// Branches once a kind for all values.
template <int kCount>
__device__ void activate_all(const Activation& activation, float (&values)[kCount]) {
  if (activation.kind == Activation::kNone) return;
  activate_all(activation, values, std::make_integer_sequence<int, Activation::kNumKinds>());
}

// The bias and the residual of y[row][n]; zero where there is none, or no such element.
__device__ inline float bias_of(const LinearLaunch& args, std::int64_t n) {
  return load_where(args.bias != nullptr && n < args.n, args.bias + n);
}
__device__ inline float residual_of(const LinearLaunch& args, std::int64_t row, std::int64_t n) {
  return load_where(args.residual != nullptr && row < args.m && n < args.n,
                    args.residual + row * args.residual_stride + n);
}

// What is added to the residual.
__device__ inline float scaled(const LinearLaunch& args, float value) {
  return args.scale == 1.0F ? value : value * args.scale;
}

// Writes y[row][n] from the sum of its products, where there is such an element.
__device__ inline void finish(const LinearLaunch& args, std::int64_t row, std::int64_t n, float sum,
                              float bias, float residual) {
  float value[1] = {args.bias != nullptr ? sum + bias : sum};
  activate_all(args.activation, value);
  if (row < args.m && n < args.n) {
    const float own = scaled(args, value[0]);
    args.y[row * args.y_stride + n] = args.residual != nullptr ? own + residual : own;
  }
}
__device__ inline void finish(const LinearLaunch& args, std::int64_t row, std::int64_t n,
                              float sum) {
  finish(args, row, n, sum, bias_of(args, n), residual_of(args, row, n));
}

// Writes a warp's sums, of kOutputs tiles of 16 outputs from first_output on by kEights times 8
// rows from first_row on, in fragments.
template <int kOutputs, int kEights>
__device__ void write_sums(const LinearLaunch& args, float (&sums)[kOutputs][kEights][4],
                           std::int64_t first_row, std::int64_t first_output) {
  const std::int64_t row0 = first_row + lane_index() % 4 * 2;
  const std::int64_t n0 = first_output + lane_index() / 4;
  // Rows and outputs of element i of sums[o][r].
  const auto row_of = [&](int r, int i) { return row0 + r * 8 + i % 2; };
  const auto output_of = [&](int o, int i) { return n0 + o * kTileSide + i / 2 * 8; };
  if (args.bias != nullptr) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const float biases[2] = {bias_of(args, output_of(o, 0)), bias_of(args, output_of(o, 2))};
#pragma unroll
      for (int r = 0; r < kEights; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[o][r][i] += biases[i / 2];
      }
    }
  }
  activate_all(args.activation, reinterpret_cast<float(&)[kOutputs * kEights * 4]>(sums));
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    // All are loaded before the first write: the residual may be y itself.
    float residuals[kEights][4];
#pragma unroll
    for (int r = 0; r < kEights; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        residuals[r][i] = residual_of(args, row_of(r, i), output_of(o, i));
      }
    }
#pragma unroll
    for (int r = 0; r < kEights; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (row_of(r, i) < args.m && output_of(o, i) < args.n) {
          float& to = args.y[row_of(r, i) * args.y_stride + output_of(o, i)];
          const float own = scaled(args, sums[o][r][i]);
          to = args.residual != nullptr ? own + residuals[r][i] : own;
        }
      }
    }
  }
}

// Two elements of a row of which `left` more exist, zero behind its end.
__device__ inline void load_pair(const float* at, std::int64_t left, bool aligned,
                                 float (&pair)[2]) {
  if (aligned && left >= 2) {
    const Floats2 two = load(reinterpret_cast<const Floats2*>(at));
    pair[0] = two.values[0];
    pair[1] = two.values[1];
  } else {
    pair[0] = left > 0 ? at[0] : 0.0F;
    pair[1] = left > 1 ? at[1] : 0.0F;
  }
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

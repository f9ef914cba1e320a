// An element of a checkpoint's matrix, zero beyond its inputs.
#pragma once

#include <device_primitives.cuh>

#include <cstdint>

#include "cuda/linear.h"

namespace lmtp::kernels::cuda {

__device__ inline float read_source(const WeightSource& source, std::int64_t n, std::int64_t k) {
  if (k >= source.k) return 0.0F;
  const std::int64_t at = n * source.row_stride + k * source.column_stride;
  switch (source.type) {
    case ElementType::kF32:
      return static_cast<const float*>(source.data)[at];
    case ElementType::kF16:
      return widen<F16>(static_cast<const std::uint16_t*>(source.data)[at]);
    case ElementType::kBF16:
      return widen<BF16>(static_cast<const std::uint16_t*>(source.data)[at]);
    case ElementType::kE4M3:
      break;  // for keys and values alone
  }
  return 0.0F;
}

}  // namespace lmtp::kernels::cuda

// Normalisation of rows: local to the row, with a fixed reduction tree.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

inline constexpr std::int64_t kDeviceNormWidthMax = 16384;  // limit of the CUDA kernels

struct LayerNormArgs {
  Matrix<const float> x;  // [m, width] f32
  // REQUIRES: no running launch writes them.
  const float* weight = nullptr;  // [width] f32
  const float* bias = nullptr;    // [width] f32, or null
  float epsilon = 0.0F;
  Matrix<float> y;  // [m, width] f32; may be x itself
};

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias; the variance is the population's.
void layer_norm(Stream& stream, const LayerNormArgs& args);

// Each row is `groups` contiguous vectors, each normalised on its own: the heads of a query or key,
// or 1.
struct RmsNormArgs {
  Matrix<const float> x;          // [m, groups * width] f32
  const float* weight = nullptr;  // [width] f32; REQUIRES: no running launch writes it
  std::int64_t groups = 1;
  float epsilon = 0.0F;
  Matrix<const float> residual = {};  // [m, groups * width] f32, or empty; may be y itself
  Matrix<float> y;                    // [m, groups * width] f32; may be x itself
};

// y = x / sqrt(mean(x^2) + epsilon) * weight + residual (Zhang and Sennrich 2019).
void rms_norm(Stream& stream, const RmsNormArgs& args);

}  // namespace lmtp::kernels

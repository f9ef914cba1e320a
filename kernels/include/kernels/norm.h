// Normalisation of rows: local to the row, with a fixed reduction tree.
#pragma once

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

struct LayerNormArgs {
  Matrix<const float> x;          // [m, width] f32
  const float* weight = nullptr;  // [width] f32
  const float* bias = nullptr;    // [width] f32, or null
  float epsilon = 0.0F;
  Matrix<float> y;  // [m, width] f32; may be x itself
};

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias; the variance is the population's.
void layer_norm(Stream& stream, const LayerNormArgs& args);

}  // namespace lmtp::kernels

// Rotary position embedding (Su et al. 2021), in the layout of Hugging Face checkpoints: dimension
// i of a head is rotated with dimension i + rotary_dim / 2.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

// The angles of a step's tokens: once for all layers.
struct RotaryAnglesArgs {
  const std::int32_t* positions = nullptr;  // [m]
  const float* inverse_periods = nullptr;   // [rotary_dim / 2] f32, radians a position
  float factor = 1.0F;                      // of both cosine and sine
  // The factor at position p is factor * (1 + growth * log(1 + p / period)), p / period rounded
  // down (Llama 4's scale of queries).
  float growth = 0.0F;
  std::int32_t period = 1;  // > 0
  Matrix<float> cosines;    // [m, rotary_dim / 2] f32
  Matrix<float> sines;      // as cosines
};

// cosines[i][j] = factor * cos(positions[i] * inverse_periods[j]), the product rounded to f32
// first.
void rotary_angles(Stream& stream, const RotaryAnglesArgs& args);

struct RotaryArgs {
  Matrix<float> x;              // [m, num_heads * head_dim] f32, in place
  int head_dim = 0;             // the first 2 * cosines.columns dimensions of a head are rotated
  Matrix<const float> cosines;  // [m, rotary_dim / 2] f32
  Matrix<const float> sines;    // as cosines
};

// (a, b) -> (a cos - b sin, b cos + a sin) for every pair of dimensions of every head.
void rotary(Stream& stream, const RotaryArgs& args);

}  // namespace lmtp::kernels

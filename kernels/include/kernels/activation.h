// Activations, and those that are not fused into a linear.
#pragma once

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

enum class Activation {
  kNone,
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): HF's gelu_new
  kGeluErf,   // 0.5 x (1 + erf(x / sqrt(2))): HF's gelu
  kRelu,
  kSquaredRelu,  // max(x, 0)^2: HF's relu2
  kSilu,
};

struct GatedActivationArgs {
  Matrix<const float> x;  // [m, 2 * width] f32: gate | up
  Activation activation = Activation::kSilu;
  Matrix<float> y;  // [m, width] f32; may be the first half of x
};

// y = activation(gate) * up (Shazeer 2020).
void gated_activation(Stream& stream, const GatedActivationArgs& args);

// x = activation(x), in place, with the bits that a linear's own activation gives.
void activate(Stream& stream, Matrix<float> x, Activation activation);

// x = cap * tanh(x / cap), in place: Gemma 2's soft cap. REQUIRES: cap > 0.
void soft_cap(Stream& stream, Matrix<float> x, float cap);

}  // namespace lmtp::kernels

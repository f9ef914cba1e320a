// Activations, and those that are not fused into a linear.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

// A function of one number, and the numbers that it needs. Plain data, which goes to a device.
struct Activation {
  enum Kind : std::uint8_t {
    kNone,
    kGeluTanh,     // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): HF's gelu_new
    kGeluErf,      // 0.5 x (1 + erf(x / sqrt(2))): HF's gelu
    kClippedGelu,  // min(that, limit): HF's gelu_10
    kQuickGelu,    // x / (1 + e^(-1.702 x)): HF's quick_gelu
    kRelu,
    kClippedRelu,  // min(max(x, 0), limit): HF's relu6
    kSquaredRelu,  // max(x, 0)^2: HF's relu2
    kSilu,
    // xIELU (Huang and Schlag 2024): above x^2 + slope x where x > 0, else
    // below (e^min(x, near) - 1 - x) + slope x.
    kXielu,
  };
  static constexpr int kNumKinds = kXielu + 1;

  constexpr Activation(Kind of = kNone, float most = 0.0F)  // NOLINT(google-explicit-constructor)
      : kind(of), limit(most) {}

  bool operator==(const Activation&) const = default;

  Kind kind;
  float limit;
  float above = 0.0F;
  float below = 0.0F;
  float slope = 0.0F;
  float near = 0.0F;
};

struct GatedActivationArgs {
  Matrix<const float> x;  // [m, 2 * width] f32: gate | up
  Activation activation = Activation::kSilu;
  Matrix<float> y;  // [m, width] f32; may be the first half of x
  // On a CPU alone, as gpt-oss has it.
  bool interleaved = false;  // x: a gate and an up in turn
  float limit = 0.0F;        // gate is at most that, up within [-limit, limit]; 0: none
  float up_added = 0.0F;     // to up, after the limit
};

// y = activation(gate) * (up + up_added) (Shazeer 2020).
void gated_activation(Stream& stream, const GatedActivationArgs& args);

// x = activation(x), in place, with the bits that a linear's own activation gives.
void activate(Stream& stream, Matrix<float> x, Activation activation);

// x = cap * tanh(x / cap), in place: Gemma 2's soft cap. REQUIRES: cap > 0.
void soft_cap(Stream& stream, Matrix<float> x, float cap);

}  // namespace lmtp::kernels

// Reductions over the lanes of a vector, its transposition, and the functions that no instruction
// computes. Every lane gets the same operations, so tails need no code of their own.
#pragma once

#include "kernels/linear.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Sum and maximum over lanes by halving: ((0+8)+(4+12))+..., a fixed tree.
inline float sum_lanes(F v) {
  float lanes[kLanes];
  store(lanes, v);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

inline float max_lanes(F v) {
  float lanes[kLanes];
  store(lanes, v);
  float best = lanes[0];
  for (int lane = 1; lane < kLanes; ++lane) best = best < lanes[lane] ? lanes[lane] : best;
  return best;
}

// Lane l of vector v becomes lane v of vector l: log2(kLanes) times the two halves zipped.
[[gnu::always_inline]] inline void transpose(F (&vectors)[kLanes]) {
  for (int zips = kLanes; zips > 1; zips /= 2) {
    F zipped[kLanes];
#pragma GCC unroll 16
    for (int v = 0; v < kLanes / 2; ++v) {
      zipped[2 * v] = zip_lower(vectors[v], vectors[v + kLanes / 2]);
      zipped[2 * v + 1] = zip_upper(vectors[v], vectors[v + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kLanes; ++v) vectors[v] = zipped[v];
  }
}

inline constexpr float kExpLowest = -87.3F;

// e^r - 1 with v = n ln 2 + r, and n. Cephes' expf (S. Moshier): ln 2 in two parts, a polynomial of
// degree 6 in r; relative error below 2e-7. Below kExpLowest and above 88 as there; NaN stays NaN.
[[gnu::always_inline]] inline F exp_rest(F v, F& n) {
  const F x = greater_of(broadcast(kExpLowest), lesser_of(broadcast(88.0F), v));
  n = round_to_whole(multiply(x, broadcast(1.44269504088896341F)));
  F r = multiply_add(n, broadcast(-0.693359375F), x);
  r = multiply_add(n, broadcast(2.12194440e-4F), r);
  F p = broadcast(1.9875691500e-4F);
  p = multiply_add(p, r, broadcast(1.3981999507e-3F));
  p = multiply_add(p, r, broadcast(8.3334519073e-3F));
  p = multiply_add(p, r, broadcast(4.1665795894e-2F));
  p = multiply_add(p, r, broadcast(1.6666665459e-1F));
  p = multiply_add(p, r, broadcast(5.0000001201e-1F));
  return multiply_add(p, multiply(r, r), r);
}

// e^v: 0 below -87.3; NaN stays NaN; above 88 the value at 88.
[[gnu::always_inline]] inline F exp(F v) {
  F n;
  const F p = add(exp_rest(v, n), broadcast(1.0F));
  return where_less(v, broadcast(kExpLowest), zero(), multiply(p, power_of_two(n)));
}

// e^v - 1: relative error about 1e-6, also around 0.
inline F exp_minus_one(F v) {
  F n;
  const F p = exp_rest(v, n);
  const F power = power_of_two(n);
  return multiply_add(p, power, subtract(power, broadcast(1.0F)));
}

// 1 - 2 / (1 + e^2x): absolute error about 1e-7.
inline F tanh(F x) {
  const F power = exp(add(x, x));
  return subtract(broadcast(1.0F), divide(broadcast(2.0F), add(broadcast(1.0F), power)));
}

// x / (1 + e^-x)
inline F silu(F x) { return divide(x, add(broadcast(1.0F), exp(subtract(zero(), x)))); }

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
inline F gelu_tanh(F x) {
  const F cube = multiply(multiply(x, x), x);
  const F inner = multiply_add(broadcast(0.044715F), cube, x);
  const F power = exp(multiply(broadcast(-1.5957691216057308F), inner));
  return divide(x, add(broadcast(1.0F), power));
}

// 0.5 x (1 + erf(x / sqrt(2))), erf by Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7):
// with z = |x| / sqrt(2) and q = 1 - erf(z), the result is x - 0.5 x q for x > 0, else 0.5 x q.
inline F gelu_erf(F x) {
  const F z = multiply(absolute(x), broadcast(0.70710678118654752F));
  const F t = divide(broadcast(1.0F), multiply_add(broadcast(0.3275911F), z, broadcast(1.0F)));
  F p = broadcast(1.061405429F);
  p = multiply_add(p, t, broadcast(-1.453152027F));
  p = multiply_add(p, t, broadcast(1.421413741F));
  p = multiply_add(p, t, broadcast(-0.284496736F));
  p = multiply_add(p, t, broadcast(0.254829592F));
  const F q = multiply(multiply(p, t), exp(subtract(zero(), multiply(z, z))));
  const F tail = multiply(multiply(broadcast(0.5F), x), q);
  return where_less(x, zero(), tail, subtract(x, tail));
}

inline F quick_gelu(F x) {
  return divide(x, add(broadcast(1.0F), exp(multiply(broadcast(-1.702F), x))));
}

inline F xielu(const Activation& numbers, F x) {
  const F line = multiply(broadcast(numbers.slope), x);
  const F above = multiply_add(multiply(broadcast(numbers.above), x), x, line);
  const F curve = subtract(exp_minus_one(lesser_of(broadcast(numbers.near), x)), x);
  const F below = multiply_add(curve, broadcast(numbers.below), line);
  return where_less(zero(), x, above, below);
}

[[gnu::always_inline]] inline F activate(const Activation& activation, F v) {
  switch (activation.kind) {
    case Activation::kNone:
      return v;
    case Activation::kGeluTanh:
      return gelu_tanh(v);
    case Activation::kGeluErf:
      return gelu_erf(v);
    case Activation::kClippedGelu:
      return lesser_of(broadcast(activation.limit), gelu_erf(v));
    case Activation::kQuickGelu:
      return quick_gelu(v);
    case Activation::kRelu:
      return greater_of(zero(), v);
    case Activation::kClippedRelu:
      return lesser_of(broadcast(activation.limit), greater_of(zero(), v));
    case Activation::kSquaredRelu:
      return multiply(greater_of(zero(), v), greater_of(zero(), v));
    case Activation::kSilu:
      return silu(v);
    case Activation::kXielu:
      return xielu(activation, v);
  }
  return v;
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

// Rows of inputs as the products of a linear take them: units of 32 bits (kernels/linear.h).
#pragma once

#include "kernels/linear.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline constexpr int kFloatsPerLine = 16;  // of a cache

// The scale of a row for int8: its largest magnitude / 127; NaN where an element is NaN or
// infinite, so that the row's results show it.
inline float row_scale(const float* x, std::int64_t k) {
  F largest = zero();
  F poison = zero();
  for (std::int64_t c = 0; c < k; c += kLanes) {
    const int count = k - c < kLanes ? static_cast<int>(k - c) : kLanes;
    const F v = load_first(x + c, count);
    largest = greater_of(absolute(v), largest);
    poison = multiply_add(v, zero(), poison);
  }
  return max_lanes(largest) * (1.0F / 127.0F) + sum_lanes(poison);
}

// What a row's inputs are multiplied by; `row_scales` is used for int8 alone.
template <WeightType kType>
inline float inverse_scale(const float* row_scales, std::int64_t row) {
  if constexpr (kType == WeightType::kInt8) {
    return row_scales[row] > 0.0F ? 1.0F / row_scales[row] : 0.0F;
  }
  return 1.0F;
}

// The units [unit, unit + kLanes) of a row of k inputs, zero beyond them.
template <WeightType kType>
inline F units_at(const float* x, std::int64_t k, std::int64_t unit, float inverse) {
  constexpr int kEach = inputs_per_unit(kType);
  F inputs[kEach];
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t at = unit * kEach + i * kLanes;
    const std::int64_t left = k - at;
    inputs[i] = left >= kLanes ? load(x + at)
                : left > 0     ? load_first(x + at, static_cast<int>(left))
                               : zero();
    if constexpr (kType == WeightType::kInt8) inputs[i] = multiply(inputs[i], broadcast(inverse));
  }
  if constexpr (kType == WeightType::kBF16) {
    return units_of_bf16(inputs[0], inputs[1]);
  } else if constexpr (kType == WeightType::kInt8) {
    return units_of_int8(inputs);
  } else {
    return inputs[0];
  }
}

// Floats of x that stand for a unit: the unit itself, or both its inputs.
template <WeightType kType>
inline constexpr int kUnitFloats = (kWidensInputs && kType == WeightType::kBF16) ||
                                           is_kept_narrow(kType)
                                       ? 2
                                       : 1;

// sum + the products of one unit, lane by lane.
template <WeightType kType>
[[gnu::always_inline]] inline F dot(F inputs, F weights, F sum) {
  if constexpr (kType == WeightType::kBF16) {
    return dot_bf16(inputs, weights, sum);
  } else if constexpr (kType == WeightType::kInt8) {
    return dot_int8(inputs, weights, sum);
  } else {
    return multiply_add(inputs, weights, sum);
  }
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

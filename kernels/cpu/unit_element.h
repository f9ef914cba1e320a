// The weights in a unit of a packed linear (kernels/linear.h).
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "lmtp/base/half.h"

namespace lmtp::kernels {

// Weight `index` of a unit as f32, before its output's scale.
template <WeightType kType>
[[gnu::always_inline]] inline float unit_element(std::uint32_t unit, std::int64_t index) {
  if constexpr (kType == WeightType::kInt8) {
    return static_cast<float>(static_cast<std::int8_t>(unit >> (8 * index)));
  }
  const std::uint32_t bits = kType == WeightType::kF32 ? unit
                             : index == 0              ? unit << 16
                                                       : unit & 0xFFFF0000U;
  float value = 0.0F;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// The weight [n, k] of kF32AsF16.
[[gnu::always_inline]] inline float half_element(const PackedLinear& weight, std::int64_t n,
                                                 std::int64_t k) {
  const auto* panel = static_cast<const std::uint32_t*>(weight.panels) +
                      n / kPanelColumns * weight.num_units() * kPanelColumns;
  return half_value(
      reinterpret_cast<const std::uint16_t*>(panel)[half_index(k, n % kPanelColumns)]);
}

}  // namespace lmtp::kernels

// IEEE half precision numbers as bits. Any thread.
#pragma once

#include <cstdint>

namespace lmtp {

// Subnormals, infinities and NaN included.
[[gnu::always_inline]] inline float half_value(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  const auto as_float = [](std::uint32_t bits) {
    float value = 0.0F;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
  };
  // The exponent is moved to f32's by a multiplication, which puts subnormals right as well.
  const float scaled = as_float(magnitude << 13) * as_float((254U - 15U) << 23);
  std::uint32_t finite = 0;
  __builtin_memcpy(&finite, &scaled, sizeof(finite));
  return as_float(sign | (magnitude >= 0x7C00U ? (magnitude << 13) | 0x7F800000U : finite));
}

// To nearest, ties to even; infinite beyond the range.
[[gnu::always_inline]] inline std::uint32_t round_to_half(float value) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | 0x7E00U;
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // 65520 and more
  if (magnitude < 0x38800000U) {
    // Subnormal: adding 0.5 rounds at the last of half's bits, 2^-24.
    float sum = 0.0F;
    __builtin_memcpy(&sum, &magnitude, sizeof(sum));
    sum += 0.5F;
    __builtin_memcpy(&bits, &sum, sizeof(bits));
    return sign | (bits - 0x3F000000U);
  }
  return sign | ((magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13);
}

}  // namespace lmtp

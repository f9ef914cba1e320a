// Integer conversions of f16 and bf16 bits, as a reference for tests of narrow types.
#pragma once

#include <bit>
#include <cstdint>

namespace lmtp::testing {

// round_to: to nearest, ties to even; too large becomes infinite; not a number stays one.

inline std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(value == value ? rounded : 0x7FFFU);
}

inline float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline std::uint16_t round_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFU);
  constexpr float kOverflow = 65520.0F;       // half way beyond the largest
  constexpr float kNormal = 6.103515625e-5F;  // 2^-14
  if (value != value) return 0x7FFFU;
  if (magnitude >= kOverflow) return sign | 0x7C00U;
  if (magnitude < kNormal) {
    // A subnormal counts 2^-24; adding 2^-1 (whose last bit is that) lets the processor round.
    const auto sum = std::bit_cast<std::uint32_t>(magnitude + 0.5F);
    return static_cast<std::uint16_t>(sign | (sum - std::bit_cast<std::uint32_t>(0.5F)));
  }
  const std::uint32_t magnitude_bits = bits & 0x7FFFFFFFU;
  const std::uint32_t rounded = magnitude_bits + 0xFFFU + ((magnitude_bits >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
}

inline float widen_f16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  if (magnitude >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | (magnitude << 13));
  // The exponent is moved to f32's by a multiplication, which puts subnormals right as well.
  const float scaled =
      std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>((254U - 15U) << 23);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

}  // namespace lmtp::testing

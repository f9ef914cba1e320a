// E4M3FN, the 8-bit floats of keys and values: a sign, 4 bits of exponent (bias 7), 3 of mantissa.
// Up to 448, no infinity, 0x7F and 0xFF are not a number. Every code is a number of bf16, too.
#pragma once

#include <bit>
#include <cstdint>

namespace lmtp::kernels {

// To nearest, ties to even; what is larger than 448, infinity too, becomes 448; not a number stays
// one, and nothing else becomes one.
constexpr std::uint32_t round_to_e4m3(float value) {
  constexpr std::uint32_t kLargest = 0x43E00000U;         // 448
  constexpr std::uint32_t kSmallestNormal = 0x3C800000U;  // 2^-6
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | 0x7FU;
  if (magnitude >= kLargest) return sign | 0x7EU;
  if (magnitude < kSmallestNormal) {
    // Subnormal: a number from 2^14 on counts in 2^-9, the last bit here.
    const float sum = std::bit_cast<float>(magnitude) + 16384.0F;
    return sign | (std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(16384.0F));
  }
  const std::uint32_t rounded = magnitude + 0x7FFFFU + ((magnitude >> 20) & 1U);
  return sign | ((rounded - (120U << 23)) >> 20);
}

constexpr float widen_e4m3(std::uint32_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == 0x7FU) return std::bit_cast<float>(sign | 0x7FC00000U);
  if (magnitude < 8U) {
    const float subnormal = static_cast<float>(magnitude) * 0.001953125F;  // 2^-9
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120U << 23)));
}

// Where element `index` of each four stands among their bytes: bytes 0 and 2 widen to one pair of
// bf16, bytes 1 and 3 to the next.
constexpr int byte_of_e4m3(int index) { return index % 2 * 2 + index / 2; }

}  // namespace lmtp::kernels

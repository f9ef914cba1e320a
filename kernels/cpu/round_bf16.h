// Rounding to bfloat16.
#pragma once

#include <cstdint>

namespace lmtp::kernels {

// The upper half of an f32, rounded to nearest, ties to even; not a number stays one.
[[gnu::always_inline]] inline std::uint32_t round_to_bf16(float value) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return value == value ? rounded : 0x7FC0U;
}

}  // namespace lmtp::kernels

// FP4's e2m1, as OCP's Microscaling Formats 1.0 have it: a sign, two bits of exponent, one more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lmtp::model {

// REQUIRES: code < 16.
inline float e2m1(std::uint8_t code) {
  constexpr std::array<float, 8> kSizes = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  return code < 8 ? kSizes[code] : -kSizes[code & 7U];
}

// Two codes a byte, the lower half first, become one a byte. The bytes lie in the upper half of
// where the codes go; an odd last code is alone in its byte.
inline void split_pairs(std::uint8_t* codes, std::size_t num_codes) {
  const std::uint8_t* const pairs = codes + num_codes / 2;
  for (std::size_t i = 0; i < num_codes; ++i) {
    const std::uint8_t pair = pairs[i / 2];
    codes[i] = i % 2 == 0 ? pair & 15U : static_cast<std::uint8_t>(pair >> 4);
  }
}

// A scale that is a power of two, E8M0: larger ones than 252 make no number of some codes.
inline constexpr int kE8M0Max = 252;

}  // namespace lmtp::model

// What a token weighs in a draw: e^((logit - max) / temperature), with the row's greatest logit, in
// units of 2^-40. Each operation is rounded by itself, so that every processor and device gets the
// same bits: sums of weights, as whole numbers, are then the same everywhere, and so is the token
// that a random number draws. A token whose weight is below 1 is not drawn.
#pragma once

#include <bit>
#include <cstdint>

namespace lmtp::kernels {

inline constexpr float kDrawWeightOfBest = 0x1.0p40F;
// Of (logit - max) / temperature: whatever is below weighs 0. e^-28 is below 2^-40.
inline constexpr float kDrawExponentMin = -28.0F;

// The weight before it is cut to a whole number: Cephes' expf (S. Moshier) without fused
// operations. The CPU's vectors take the same steps (kernel_rows.h). REQUIRES: logit <= max, which
// is finite; temperature > 0; compiled without contraction (-ffp-contract=off, -fmad=false), as
// kernels are.
constexpr float draw_weight(float logit, float max, float temperature) {
  const float x = (logit - max) / temperature;
  if (!(x >= kDrawExponentMin)) return 0.0F;
  // Adding and taking away 1.5 * 2^23 rounds at the units.
  const float n = (x * 1.44269504088896341F + 12582912.0F) - 12582912.0F;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = (p * (r * r) + r) + 1.0F;
  const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127);
  return p * std::bit_cast<float>(exponent << 23) * kDrawWeightOfBest;
}

}  // namespace lmtp::kernels

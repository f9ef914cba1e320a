// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (2011): a random number is a function of (key, counter), with no state to carry along.
// The host and a device call the same functions.
#pragma once

#include <cstdint>

namespace lmtp::kernels {

struct PhiloxWords {
  std::uint32_t words[4];

  bool operator==(const PhiloxWords&) const = default;
};
struct PhiloxKey {
  std::uint32_t words[2];
};

constexpr PhiloxWords philox4x32(PhiloxWords counter, PhiloxKey key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t low = std::uint64_t{0xD2511F53U} * counter.words[0];
    const std::uint64_t high = std::uint64_t{0xCD9E8D57U} * counter.words[2];
    counter = {{static_cast<std::uint32_t>(high >> 32) ^ counter.words[1] ^ key.words[0],
                static_cast<std::uint32_t>(high),
                static_cast<std::uint32_t>(low >> 32) ^ counter.words[3] ^ key.words[1],
                static_cast<std::uint32_t>(low)}};
    key = {{key.words[0] + 0x9E3779B9U, key.words[1] + 0xBB67AE85U}};
  }
  return counter;
}

// Uniform in [0, 1), 53 bits: the number of a stream's position under a seed.
constexpr double uniform(std::uint64_t seed, std::uint64_t position) {
  const PhiloxWords drawn = philox4x32(
      {{static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), 0, 0}},
      {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}});
  const std::uint64_t bits = (std::uint64_t{drawn.words[0]} << 32) | drawn.words[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace lmtp::kernels

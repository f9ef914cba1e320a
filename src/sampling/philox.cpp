#include "lmtp/sampling/philox.h"

namespace lmtp::sampling {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t low = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t high = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(high >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(high),
               static_cast<std::uint32_t>(low >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(low)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

double uniform(std::uint64_t seed, std::uint64_t position) {
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), 0, 0},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace lmtp::sampling

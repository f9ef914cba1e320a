// Counter-based random numbers: functions of a key and a counter, so that request 7 of a seed is
// the same in any thread and order.
#pragma once

#include <cstdint>

namespace lmtp::tools {

// SplitMix64's finalizer: each bit of `x` moves each bit of the result.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  return mixed(key ^ mixed(counter));
}

// Evenly in [0, n). REQUIRES: 0 < n < 2^32.
constexpr std::int64_t random_below(std::uint64_t key, std::uint64_t counter, std::int64_t n) {
  const std::uint64_t high = random_bits(key, counter) >> 32U;
  return static_cast<std::int64_t>((high * static_cast<std::uint64_t>(n)) >> 32U);
}

}  // namespace lmtp::tools

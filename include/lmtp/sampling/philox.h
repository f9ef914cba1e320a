// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (2011): a random number is a function of (key, counter), with no state to carry along.
#pragma once

#include <array>
#include <cstdint>

namespace lmtp::sampling {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// Uniform in [0, 1), 53 bits: the number of a stream's position under a seed.
double uniform(std::uint64_t seed, std::uint64_t position);

}  // namespace lmtp::sampling

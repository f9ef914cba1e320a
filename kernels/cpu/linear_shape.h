// Which shape of a linear is fast on which processor (docs/kernels.md has the measurements).
#pragma once

#include <cstddef>

#include "kernels/linear.h"

namespace lmtp::kernels {

// Bytes of the second cache of one core; 0 where the system does not say. Any thread.
std::size_t second_cache_bytes();

// For kernels with so many vector registers on a core with such a second cache.
LinearShape linear_shape_for(int num_registers, std::size_t second_cache_bytes);

}  // namespace lmtp::kernels

// The fast shape of a linear for a processor (measurements: linear_shape.cpp).
#pragma once

#include <cstddef>

#include "kernels/linear.h"

namespace lmtp::kernels {

// Bytes of one core's L2 cache; 0 where the system does not report it. Any thread.
std::size_t l2_cache_bytes();

// For kernels with so many vector registers on a core with that L2 cache.
LinearShape linear_shape_for(int num_registers, std::size_t l2_cache_bytes);

}  // namespace lmtp::kernels

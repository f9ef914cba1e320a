// Packing weights by groups (kernels/grouping.h).
#pragma once

#include <cstdint>

#include "kernels/linear.h"

namespace lmtp::kernels {

// Rounds the inputs [first, first + count) of one panel to 4 bits: one group. `values` has column
// c's input first + i at [c * column_stride + i * input_stride]. REQUIRES: the target is kInt4.
void write_int4_group(const float* values, std::int64_t column_stride, std::int64_t input_stride,
                      std::int64_t count, std::uint32_t* to);

// Where the group that begins with that input is in the panels of a target.
std::uint32_t* group_in(const PackTarget& to, std::int64_t k, std::int64_t panel,
                        std::int64_t group);

}  // namespace lmtp::kernels

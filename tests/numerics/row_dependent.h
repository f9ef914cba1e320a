// A linear op that breaks the numerics contract on purpose: the grid must detect it.
#pragma once

#include "kernels/backend.h"

namespace lmtp::numerics {

// This processor's kernels, except for more than kRowsMax rows at a time: the inputs are
// summed from the last to the first, and int8, whose sums are exact in any order, quantises all
// rows by the largest of them together.
inline constexpr int kRowsMax = 4;
const kernels::Backend& row_dependent_backend();

// The same but for what experts give: of more than kRowsMax rows it is summed in falling order.
const kernels::Backend& row_dependent_combine_backend();

}  // namespace lmtp::numerics

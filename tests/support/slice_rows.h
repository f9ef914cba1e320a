// Some rows of a matrix, as a view.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "lmtp/base/check.h"

namespace lmtp::testing {

// The rows [first, first + count).
template <typename T>
kernels::Matrix<T> slice_rows(const kernels::Matrix<T>& all, std::int64_t first,
                              std::int64_t count) {
  LMTP_CHECK(first >= 0 && count >= 0 && first + count <= all.rows, first, count, all.rows);
  return {all.row(first), count, all.columns, all.stride};
}

}  // namespace lmtp::testing

// Non-owning views of matrices, and checks that shapes match. An op reads and writes nothing
// outside the views it is given.
#pragma once

#include <cstdint>

#include "lmtp/base/check.h"

namespace lmtp::kernels {

// [rows, columns], rows `stride` elements apart, columns next to each other.
template <typename T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // elements, >= columns

  [[gnu::always_inline]] T* row(std::int64_t index) const { return data + index * stride; }
  bool empty() const { return data == nullptr; }
  // The columns [first, first + count) of every row.
  Matrix<T> slice_columns(std::int64_t first, std::int64_t count) const {
    LMTP_CHECK(first >= 0 && count >= 0 && first + count <= columns, first, count, columns);
    return {data + first, rows, count, stride};
  }
  operator Matrix<const T>() const { return {data, rows, columns, stride}; }  // NOLINT
};

// A matrix with contiguous rows.
template <typename T>
Matrix<T> make_matrix(T* data, std::int64_t rows, std::int64_t columns) {
  return {data, rows, columns, columns};
}

// Aborts unless both names mean the same size. `op` and the names are for the message.
inline void check_same(const char* op, const char* name, std::int64_t value, const char* other_name,
                       std::int64_t other) {
  LMTP_CHECK(value == other, op, name, value, other_name, other);
}

}  // namespace lmtp::kernels

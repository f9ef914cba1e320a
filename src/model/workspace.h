// Workspace: a bump allocator for intermediate results.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/memory.h"
#include "lmtp/base/check.h"

namespace lmtp::model {

// Owner: a model. Matrices are valid until rewind() to a mark from before them.
class Workspace {
 public:
  // In memory of the backend's device.
  Workspace(const kernels::Backend& backend, std::int64_t num_floats)
      : memory_(kernels::Memory::allocate(backend,
                                          static_cast<std::size_t>(num_floats) * sizeof(float))),
        num_floats_(num_floats) {}

  // [rows, columns] f32, contents undefined.
  kernels::Matrix<float> take(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kFloatsPerLine = 16;
    const std::int64_t size =
        (rows * columns + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine;
    LMTP_CHECK(used_ + size <= num_floats_, used_, size, num_floats_);
    float* data = memory_.floats() + used_;
    used_ += size;
    return kernels::make_matrix(data, rows, columns);
  }

  std::int64_t mark() const { return used_; }
  void rewind(std::int64_t mark) { used_ = mark; }

 private:
  kernels::Memory memory_;
  std::int64_t num_floats_;
  std::int64_t used_ = 0;
};

}  // namespace lmtp::model

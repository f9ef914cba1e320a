// Workspace: memory for the results between two ops, taken from the front and given back all at
// once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>

#include "kernels/matrix.h"
#include "lmtp/base/check.h"

namespace lmtp::model {

// Owner: a model. The matrices it gives live until their mark is gone back to.
class Workspace {
 public:
  explicit Workspace(std::int64_t num_floats) : memory_(at::empty({num_floats}, at::kFloat)) {}

  // [rows, columns] f32, contents undefined.
  kernels::Matrix<float> take(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kFloatsPerLine = 16;
    const std::int64_t size =
        (rows * columns + kFloatsPerLine - 1) / kFloatsPerLine * kFloatsPerLine;
    LMTP_CHECK(used_ + size <= memory_.numel(), used_, size, memory_.numel());
    float* data = memory_.data_ptr<float>() + used_;
    used_ += size;
    return kernels::make_matrix(data, rows, columns);
  }

  std::int64_t mark() const { return used_; }
  void back_to(std::int64_t mark) { used_ = mark; }

 private:
  at::Tensor memory_;  // [num_floats] f32
  std::int64_t used_ = 0;
};

}  // namespace lmtp::model

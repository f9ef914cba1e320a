// Linear: a packed weight with its bias.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/linear.h"

namespace lmtp::model {

struct LinearExtras {
  kernels::Activation activation = kernels::Activation::kNone;
  kernels::Matrix<const float> residual = {};  // added at the end; may be the output itself
};

class Linear {
 public:
  Linear() = default;
  // panels: as kernels::PackedLinear; bias: [n] f32, or undefined.
  Linear(at::Tensor panels, at::Tensor bias, std::int64_t n, std::int64_t k)
      : panels_(std::move(panels)), bias_(std::move(bias)), n_(n), k_(k) {}

  std::int64_t num_outputs() const { return n_; }

  kernels::PackedLinear weight() const { return {panels_.const_data_ptr<float>(), n_, k_}; }

  // x: [m, k], y: [m, n].
  void operator()(kernels::Stream& stream, kernels::Matrix<const float> x, kernels::Matrix<float> y,
                  const LinearExtras& extras = {}) const {
    kernels::linear_f32(stream, {.x = x,
                                 .weight = weight(),
                                 .bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr,
                                 .activation = extras.activation,
                                 .residual = extras.residual,
                                 .y = y});
  }

 private:
  at::Tensor panels_;  // [ceil(n / kPanelColumns), k, kPanelColumns] f32
  at::Tensor bias_;    // [n] f32
  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
};

}  // namespace lmtp::model

// LayerNorm with weight and bias.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/norm.h"

namespace lmtp::model {

class LayerNorm {
 public:
  LayerNorm() = default;
  LayerNorm(at::Tensor weight, at::Tensor bias, float epsilon)
      : weight_(std::move(weight)), bias_(std::move(bias)), epsilon_(epsilon) {}

  // x, y: [m, width]; y may be x.
  void operator()(kernels::Stream& stream, kernels::Matrix<const float> x,
                  kernels::Matrix<float> y) const {
    kernels::layer_norm(stream, {.x = x,
                                 .weight = weight_.const_data_ptr<float>(),
                                 .bias = bias_.const_data_ptr<float>(),
                                 .epsilon = epsilon_,
                                 .y = y});
  }

 private:
  at::Tensor weight_;  // [width] f32
  at::Tensor bias_;    // [width] f32
  float epsilon_ = 0.0F;
};

}  // namespace lmtp::model

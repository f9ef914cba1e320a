// Norms with their weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "kernels/norm.h"

namespace lmtp::model {

class LayerNorm {
 public:
  LayerNorm() = default;
  // bias may be undefined.
  LayerNorm(at::Tensor weight, at::Tensor bias, float epsilon)
      : weight_(std::move(weight)), bias_(std::move(bias)), epsilon_(epsilon) {}

  // x, y: [m, width]; y may be x.
  void operator()(kernels::Stream& stream, kernels::Matrix<const float> x,
                  kernels::Matrix<float> y) const {
    kernels::layer_norm(stream, {.x = x,
                                 .weight = weight_.const_data_ptr<float>(),
                                 .bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr,
                                 .epsilon = epsilon_,
                                 .y = y});
  }

 private:
  at::Tensor weight_;  // [width] f32
  at::Tensor bias_;    // [width] f32, or undefined
  float epsilon_ = 0.0F;
};

class RmsNorm {
 public:
  RmsNorm() = default;
  RmsNorm(at::Tensor weight, float epsilon) : weight_(std::move(weight)), epsilon_(epsilon) {}

  // x, y: [m, groups * width], each group normalised by itself; y may be x.
  void operator()(kernels::Stream& stream, kernels::Matrix<const float> x, kernels::Matrix<float> y,
                  std::int64_t groups = 1) const {
    kernels::rms_norm(stream, {.x = x,
                               .weight = weight_.const_data_ptr<float>(),
                               .groups = groups,
                               .epsilon = epsilon_,
                               .y = y});
  }

  // x [m, width] is normalised and added to y [m, width].
  void add_to(kernels::Stream& stream, kernels::Matrix<const float> x,
              kernels::Matrix<float> y) const {
    kernels::rms_norm(stream, {.x = x,
                               .weight = weight_.const_data_ptr<float>(),
                               .epsilon = epsilon_,
                               .residual = y,
                               .y = y});
  }

 private:
  at::Tensor weight_;  // [width] f32
  float epsilon_ = 0.0F;
};

}  // namespace lmtp::model

// Norms with their weights.
#pragma once

#include <utility>

#include "kernels/norm.h"
#include "lmtp/model/weight_store.h"

namespace lmtp::model {

class LayerNorm {
 public:
  LayerNorm() = default;
  // bias: [width], or none.
  LayerNorm(PlainWeight weight, PlainWeight bias, float epsilon)
      : weight_(std::move(weight)), bias_(std::move(bias)), epsilon_(epsilon) {}

  // x, y: [m, width]; y may be x. Valid while this lives.
  kernels::LayerNormArgs of(kernels::Matrix<const float> x, kernels::Matrix<float> y) const {
    return {.x = x,
            .weight = weight_.data.get(),
            .bias = bias_.data.get(),
            .epsilon = epsilon_,
            .y = y};
  }

  void operator()(kernels::Stream& stream, kernels::Matrix<const float> x,
                  kernels::Matrix<float> y) const {
    kernels::layer_norm(stream, of(x, y));
  }

 private:
  PlainWeight weight_;  // [width]
  PlainWeight bias_;    // [width], or none
  float epsilon_ = 0.0F;
};

class RmsNorm {
 public:
  RmsNorm() = default;
  RmsNorm(PlainWeight weight, float epsilon) : weight_(std::move(weight)), epsilon_(epsilon) {}

  // x, y: [m, width]; y may be x. Valid while this lives.
  kernels::RmsNormArgs of(kernels::Matrix<const float> x, kernels::Matrix<float> y) const {
    return {.x = x, .weight = weight_.data.get(), .epsilon = epsilon_, .y = y};
  }

  // x, y: [m, groups * width], each group normalised by itself; y may be x.
  void operator()(kernels::Stream& stream, kernels::Matrix<const float> x, kernels::Matrix<float> y,
                  std::int64_t groups = 1) const {
    kernels::rms_norm(
        stream,
        {.x = x, .weight = weight_.data.get(), .groups = groups, .epsilon = epsilon_, .y = y});
  }

  // x [m, width] is normalised and added to y [m, width].
  void add_to(kernels::Stream& stream, kernels::Matrix<const float> x,
              kernels::Matrix<float> y) const {
    kernels::rms_norm(
        stream, {.x = x, .weight = weight_.data.get(), .epsilon = epsilon_, .residual = y, .y = y});
  }

 private:
  PlainWeight weight_;  // [width]
  float epsilon_ = 0.0F;
};

}  // namespace lmtp::model

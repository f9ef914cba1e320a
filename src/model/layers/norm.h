// Norms with their weights.
#pragma once

#include <utility>

#include "kernels/linear.h"
#include "kernels/norm.h"
#include "lmtp/model/weight_store.h"

namespace lmtp::model {

// An RMS or layer norm, or none.
class Norm {
 public:
  Norm() = default;
  // RMS.
  Norm(PlainWeight weight, float epsilon) : weight_(std::move(weight)), epsilon_(epsilon) {}
  // A layer norm; bias: [width], or none.
  Norm(PlainWeight weight, PlainWeight bias, float epsilon)
      : weight_(std::move(weight)), bias_(std::move(bias)), epsilon_(epsilon), is_layer_(true) {}

  bool loaded() const { return weight_.data != nullptr; }

  // x, y: [m, width]; y may be x. Valid while this lives.
  kernels::LinearPrologue of(kernels::Matrix<const float> x, kernels::Matrix<float> y) const {
    if (is_layer_) return layer_norm(x, y);
    return kernels::RmsNormArgs{.x = x, .weight = weight_.data.get(), .epsilon = epsilon_, .y = y};
  }

  // x, y: [m, groups * width], each group normalised by itself; y may be x. REQUIRES: of a layer
  // norm one group.
  void operator()(kernels::Stream& stream, kernels::Matrix<const float> x, kernels::Matrix<float> y,
                  std::int64_t groups = 1) const {
    if (is_layer_) return kernels::layer_norm(stream, layer_norm(x, y));
    kernels::rms_norm(
        stream,
        {.x = x, .weight = weight_.data.get(), .groups = groups, .epsilon = epsilon_, .y = y});
  }

  // x [m, width] is normalised and added to y [m, width]. REQUIRES: an RMS norm.
  void add_to(kernels::Stream& stream, kernels::Matrix<const float> x,
              kernels::Matrix<float> y) const {
    kernels::rms_norm(
        stream, {.x = x, .weight = weight_.data.get(), .epsilon = epsilon_, .residual = y, .y = y});
  }

 private:
  kernels::LayerNormArgs layer_norm(kernels::Matrix<const float> x,
                                    kernels::Matrix<float> y) const {
    return {.x = x,
            .weight = weight_.data.get(),
            .bias = bias_.data.get(),
            .epsilon = epsilon_,
            .y = y};
  }

  PlainWeight weight_;  // [width], or none: not loaded
  PlainWeight bias_;    // [width], or none
  float epsilon_ = 0.0F;
  bool is_layer_ = false;
};

}  // namespace lmtp::model

// Linear: a packed weight with its bias.
#pragma once

#include "kernels/linear.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {

struct LinearExtras {
  kernels::Activation activation = kernels::Activation::kNone;
  kernels::Matrix<const float> residual = {};  // added at the end; may be the output itself
};

class Linear {
 public:
  Linear() = default;
  // bias: [n], or none.
  Linear(PackedWeight weight, PlainWeight bias, std::int64_t n, std::int64_t k)
      : weight_(std::move(weight)), bias_(std::move(bias)), n_(n), k_(k) {}

  bool loaded() const { return n_ > 0; }
  std::int64_t num_outputs() const { return n_; }
  std::int64_t num_inputs() const { return k_; }

  // Valid while this lives.
  kernels::PackedLinear weight() const {
    kernels::PackedLinear packed{weight_.panels.get(), n_, k_, weight_.type};
    packed.scales = weight_.scales.get();
    packed.sums = weight_.sums.get();
    return packed;
  }

  // x: [m, k], y: [m, n].
  void operator()(kernels::Stream& stream, kernels::Matrix<const float> x, kernels::Matrix<float> y,
                  const LinearExtras& extras = {}) const {
    kernels::linear(stream, {.x = x,
                             .weight = weight(),
                             .bias = bias_.data.get(),
                             .activation = extras.activation,
                             .residual = extras.residual,
                             .y = y});
  }

 private:
  PackedWeight weight_;
  PlainWeight bias_;  // [n], or none
  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
};

}  // namespace lmtp::model

// Linear: a packed weight with its bias, or a rank's share of them.
#pragma once

#include <utility>

#include "kernels/activation.h"
#include "kernels/linear.h"
#include "kernels/lora.h"
#include "lmtp/base/check.h"
#include "lmtp/model/weights.h"
#include "step_context.h"

namespace lmtp::model {

struct LinearExtras {
  kernels::Activation activation = kernels::Activation::kNone;
  float scale = 1.0F;                          // of everything but the residual
  kernels::Matrix<const float> residual = {};  // added at the end; may be the output itself
  kernels::LinearPrologue prologue = {};       // whose y is the input, for nobody else to read
  bool is_part = false;  // of a sum over ranks: what this rank adds, which the caller sums
};

class Linear {
 public:
  Linear() = default;
  // bias: [n], or none. n and k: of this rank.
  // number: WeightLoader's, which adapters know it by; -1: they have nothing to do with it.
  // scale: of the product and the bias; what adapters add has it already.
  // REQUIRES: of the ranks of a weight that is split along its inputs, the first one has the bias.
  Linear(PackedWeight weight, PlainWeight bias, std::int64_t n, std::int64_t k, Split split,
         int number = -1, float scale = 1.0F)
      : weight_(std::move(weight)),
        bias_(std::move(bias)),
        n_(n),
        k_(k),
        split_(split),
        number_(number),
        scale_(scale) {}

  bool loaded() const { return n_ > 0; }
  std::int64_t num_outputs() const { return n_; }
  std::int64_t num_inputs() const { return k_; }

  // The same weight, shared, with another bias.
  Linear with_bias(PlainWeight bias) const {
    Linear other = *this;
    other.bias_ = std::move(bias);
    return other;
  }

  // Valid while this lives.
  kernels::PackedLinear weight() const {
    kernels::PackedLinear packed{weight_.panels.get(), n_, k_, weight_.type};
    packed.scales = weight_.scales.get();
    packed.sums = weight_.sums.get();
    packed.grouping = weight_.grouping;
    return packed;
  }

  // x: [m, k], y: [m, n].
  // REQUIRES: no activation, where the weight is split along its inputs, or there is a residual.
  void operator()(const StepContext& step, kernels::Matrix<const float> x, kernels::Matrix<float> y,
                  const LinearExtras& extras = {}) const {
    const bool is_summed = split_ == Split::kInputs;
    const bool activates = extras.activation != kernels::Activation::kNone;
    LMTP_CHECK(!activates || (!is_summed && extras.residual.empty()));
    // What an adapter adds comes before the activation, which then is a call of its own: it gives
    // the same bits.
    const bool is_adapted = number_ >= 0 && step.input.lora.concerns(number_);
    // What is added once to a sum over ranks, the first rank adds to its product: that is one call
    // of the kernel, with one rank as with several.
    const bool adds = !is_summed || step.communicator.shard().rank == 0;
    const std::int64_t mark = step.workspace.mark();
    kernels::LinearPrologue prologue = extras.prologue;
    if (is_adapted || weight_.inputs != nullptr) {  // which read x, too
      kernels::run_prologue(step.stream, std::exchange(prologue, {}));
    }
    kernels::Matrix<const float> packed_x = x;
    if (weight_.inputs != nullptr) {
      const auto ordered = step.workspace.take(x.rows, k_);
      kernels::order_inputs(step.stream, x, weight_.inputs.get(), ordered);
      packed_x = ordered;
    }
    kernels::linear(step.stream,
                    {.x = packed_x,
                     .weight = weight(),
                     .bias = bias_.data.get(),
                     .activation = is_adapted ? kernels::Activation::kNone : extras.activation,
                     .scale = scale_ * extras.scale,
                     .residual = adds ? extras.residual : kernels::Matrix<const float>{},
                     .y = y,
                     .prologue = prologue});
    if (is_adapted) {
      kernels::lora(step.stream, {.x = x, .linear = number_, .rows = step.input.lora, .y = y});
      if (activates) kernels::activate(step.stream, y, extras.activation);
    }
    step.workspace.rewind(mark);
    if (is_summed && !extras.is_part) step.communicator.sum(step.stream, y);
  }

 private:
  PackedWeight weight_;
  PlainWeight bias_;  // [n], or none
  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
  Split split_ = Split::kNone;
  int number_ = -1;
  float scale_ = 1.0F;
};

}  // namespace lmtp::model

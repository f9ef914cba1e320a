// The MLP of a sparse layer: a router, experts, and one that every token goes to.
#pragma once

#include <string>
#include <vector>

#include "kernels/experts.h"
#include "layers/linear.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"
#include "step_context.h"

namespace lmtp::model {

// How checkpoints store a sparse layer. Names follow the layer's.
struct ExpertForm {
  std::string router = "mlp.gate";
  std::string choice_bias = "mlp.gate.e_score_correction_bias";
  int choice_bias_rows = 0;  // it is [rows, experts]; 0: [experts]
  // A tensor an expert: EXPERTS.0.UP.weight.
  std::string experts = "mlp.experts";
  std::vector<std::string> up = {"gate_proj", "up_proj"};
  std::string down = "down_proj";
  // Or one of all: whole names, biases have the same with _bias.
  std::string all_up = "mlp.experts.gate_up_proj";
  std::string all_down = "mlp.experts.down_proj";
  bool is_stacked = false;  // as families publish them; else as the file has them
  // The tensors of all are [experts, inputs, outputs].
  bool is_inputs_by_outputs = false;
  std::string shared = "mlp.shared_expert";
  std::string shared_gate = "mlp.shared_expert_gate";
};

class Experts {
 public:
  // x: [m, hidden_size], normalised; adds to y [m, hidden_size].
  void operator()(const StepContext& step, kernels::Matrix<const float> x,
                  kernels::Matrix<float> y) const;

 private:
  friend class ExpertsLoading;

  // One of a kind of matrices, by expert; what they point to is in weights_ and biases_.
  using Matrices = std::vector<kernels::ExpertLinear>;

  kernels::GatedActivationArgs gate(kernels::Matrix<float> both, bool is_shared) const;
  void share(const StepContext& step, kernels::Matrix<const float> x,
             kernels::CombineArgs& to) const;

  ExpertsConfig config_;
  kernels::Activation activation_;
  float scale_ = 1.0F;  // of what is added
  Linear router_;
  PlainWeight choice_bias_;
  Matrices up_;  // [gate | up]
  Matrices down_;
  Linear shared_up_;
  Linear shared_down_;
  Linear shared_gate_;
  std::vector<PackedWeight> weights_;
  std::vector<PlainWeight> biases_;
};

// Loads the layer whose names begin with `layer`; errors are kept in the loader. `config`: of the
// loader's rank, which has a share of each expert's middle.
// The first form whose tensors the file has counts, or the first.
Experts load_experts(WeightLoader& in, const ModelConfig& config, const LayerSpec& spec,
                     const std::vector<ExpertForm>& forms, const std::string& layer);

}  // namespace lmtp::model

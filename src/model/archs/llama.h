// The layer of Llama and its relatives: mistral, qwen2, qwen3 and phi3 differ in the config, or in
// how the checkpoint stores the weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "archs/common.h"
#include "decoder_lm.h"
#include "layers/attention.h"
#include "layers/norm.h"

namespace lmtp::model {

// Grouped-query attention with rotary positions.
struct GroupedAttention {
  Linear qkv;
  std::optional<RmsNorm> query_norm;  // of each head
  std::optional<RmsNorm> key_norm;
  AttentionShape shape;

  // norm: of [m, hidden_size] f32. Returns [m, shape.query_width()] f32, in the step's workspace.
  kernels::Matrix<const float> operator()(const StepContext& step, const kernels::KvLayer& cache,
                                          const kernels::RmsNormArgs& norm) const;
};

// activation(gate(norm(x))) * up(norm(x)).
struct GatedMlp {
  Linear gate_up;
  kernels::Activation activation = kernels::Activation::kSilu;

  // norm: of [m, hidden_size] f32. Returns what is left to do: y is [m, mlp_size] f32, in the
  // step's workspace.
  kernels::GatedActivationArgs operator()(const StepContext& step,
                                          const kernels::RmsNormArgs& norm) const;
};

// x += attention_out(attention(norm(x))); x += down(mlp(norm(x))).
struct LlamaLayer {
  RmsNorm attention_norm;
  GroupedAttention attention;
  Linear attention_out;
  RmsNorm mlp_norm;
  GatedMlp mlp;
  Linear down;

  static std::int64_t floats_per_token(const ModelConfig& config);
  // x: [m, hidden_size] f32, in place
  void forward(const StepContext& step, const kernels::KvLayer& cache,
               kernels::Matrix<float> x) const;
};

// Names of a layer's matrices in the checkpoint; those of one list are stacked into one matrix.
struct LlamaNames {
  std::vector<std::string> qkv = {"q_proj", "k_proj", "v_proj"};  // one name: all in one
  std::vector<std::string> gate_up = {"gate_proj", "up_proj"};
};

std::unique_ptr<CausalLM> make_llama_family(const ModelConfig& config, WeightLoader& in,
                                            const ModelSetup& setup, const LlamaNames& names);

// The parts of a gated MLP's first product under `prefix`: two names, or one for both.
std::vector<WeightPart> gate_up_parts(const ModelConfig& config, const std::string& prefix,
                                      const std::vector<std::string>& names);

}  // namespace lmtp::model

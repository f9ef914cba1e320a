// The layer of Llama and its relatives: mistral, qwen2, qwen3 and phi3 differ by config alone, or
// by how the checkpoint holds the same weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "archs/common.h"
#include "decoder_lm.h"
#include "layers/attention.h"
#include "layers/norm.h"

namespace lmtp::model {

// x += attention(norm(x)); x += down(activation(gate(norm(x))) * up(norm(x))).
struct LlamaLayer {
  RmsNorm attention_norm;
  Linear qkv;
  std::optional<RmsNorm> query_norm;  // of each head
  std::optional<RmsNorm> key_norm;
  Linear attention_out;
  RmsNorm mlp_norm;
  Linear gate_up;
  Linear down;
  AttentionShape shape;
  int num_kv_heads = 0;
  int head_dim = 0;
  kernels::Activation activation = kernels::Activation::kSilu;

  static std::int64_t floats_per_token(const ModelConfig& config);
  // x: [m, hidden_size] f32, in place
  void forward(const StepContext& step, const kernels::KvLayer& cache,
               kernels::Matrix<float> x) const;
};

// The names under which a layer's matrices stand, each a stack of those that are used as one.
struct LlamaNames {
  std::vector<std::string> qkv = {"q_proj", "k_proj", "v_proj"};  // one name: all in one
  std::vector<std::string> gate_up = {"gate_proj", "up_proj"};
};

std::unique_ptr<CausalLM> make_llama_family(const ModelConfig& config, WeightLoader& in,
                                            int max_tokens, const LlamaNames& names);

// What a layer's attention is by the config.
AttentionShape attention_shape(const ModelConfig& config, int layer);

// The parts of the queries, keys and values under `prefix`: three names, or one for all.
std::vector<WeightPart> qkv_parts(const ModelConfig& config, const std::string& prefix,
                                  const std::vector<std::string>& names);

}  // namespace lmtp::model

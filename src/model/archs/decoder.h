// The decoder: what all architectures are made of. They differ in the config, layer by layer
// (LayerSpec), and in how a checkpoint stores the weights (DecoderForm).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "archs/common.h"
#include "layers/attention.h"
#include "layers/experts.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/weights.h"

namespace lmtp::model {

enum class NormKind : std::uint8_t { kRms, kLayer, kLayerWithoutBias, kLayerWithoutWeights };

// How checkpoints of a family store the weights. Names are those in the file without .weight, those
// in layers after `layer` and the layer's number.
struct DecoderForm {
  std::string prefix = "model.";  // where the file's names do not say
  std::string embedding = "embed_tokens";
  std::string positions = {};  // a learned row for each position; empty: none
  int position_offset = 0;     // row of position 0
  std::string layer = "layers.";
  // Those of one list are stacked into one matrix, in this order.
  std::vector<std::string> qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  bool values_first = false;  // of ModelConfig::qkv_parts: they are [q | v | k]
  std::string query_norm = "self_attn.q_norm";
  std::string key_norm = "self_attn.k_norm";
  std::string attention_out = "self_attn.o_proj";
  std::vector<std::string> up = {"mlp.gate_proj", "mlp.up_proj"};  // one name for both: stacked
  std::string down = "mlp.down_proj";
  std::string activation = "mlp.act_fn";  // whose numbers are weights
  std::string sinks = "self_attn.sinks";
  std::vector<ExpertForm> experts = {ExpertForm()};  // of sparse layers; the file has one of these
  // Which of these there are, LayerSpec says: norms before, and of results.
  std::string attention_norm = "input_layernorm";
  std::string mlp_norm = "post_attention_layernorm";
  std::string attention_result_norm = "post_attention_layernorm";
  std::string mlp_result_norm = "post_feedforward_layernorm";
  std::string final_norm = "norm";
  std::vector<std::string> heads = {"lm_head"};  // the first that the file has
  NormKind norm = NormKind::kRms;
  float norm_shift = 0.0F;            // is added to the norms' weights
  bool is_inputs_by_outputs = false;  // matrices of layers are stored [inputs, outputs]
  bool has_head_bias = false;
  // A head's numbers 2i and 2i + 1 turn together, not i and i + half.
  bool turns_neighbours = false;
  // Random models: what is added to x begins smaller, by the number of additions.
  bool begins_small = false;
};

// Loads all tensors; errors are kept in the loader. `config`: of the loader's rank.
std::unique_ptr<CausalLM> make_decoder(const ModelConfig& config, WeightLoader& in,
                                       const ModelSetup& setup, const DecoderForm& form);

struct Attention {
  Linear qkv;
  Norm query_norm;  // by `norms`
  Norm key_norm;
  QueryKeyNorm norms = QueryKeyNorm::kNone;
  int rotary = -1;  // the step's table; -1: positions do not turn
  int query_rotary = -1;
  PlainWeight sinks;  // [shape.num_heads], or none
  AttentionShape shape;

  // x: [m, hidden_size] f32, with what it goes through first. Returns [m, shape.query_width()] f32,
  // in the step's workspace.
  kernels::Matrix<const float> operator()(const StepContext& step, const kernels::KvLayer& cache,
                                          kernels::Matrix<const float> x,
                                          const kernels::LinearPrologue& prologue) const;

 private:
  // both: [m, queries | keys].
  void turn(const StepContext& step, kernels::Matrix<float> both) const;
  void normalise(const StepContext& step, kernels::Matrix<float> queries,
                 kernels::Matrix<float> keys) const;
};

struct DecoderLayer {
  Norm attention_norm;  // not loaded: none
  Attention attention;
  Linear attention_out;
  Norm attention_result_norm;
  Norm mlp_norm;
  Linear up;  // or [gate | up]; as down, not of a sparse layer
  Linear down;
  Experts experts;  // of a sparse layer
  Norm mlp_result_norm;
  LayerSpec spec;

  static std::int64_t floats_per_token(const ModelConfig& config, Shard shard);
  // x: [m, hidden_size] f32, in place.
  void forward(const StepContext& step, const kernels::KvLayer& cache,
               kernels::Matrix<float> x) const;

 private:
  void forward_parallel(const StepContext& step, const kernels::KvLayer& cache,
                        kernels::Matrix<float> x) const;
  void run_mlp(const StepContext& step, kernels::Matrix<const float> input,
               const kernels::LinearPrologue& prologue, kernels::Matrix<float> x) const;
  // x += norm(linear(input)), or as spec.norms says.
  void add(const StepContext& step, const Linear& linear, kernels::Matrix<const float> input,
           const kernels::LinearPrologue& prologue, const Norm& result_norm,
           kernels::Matrix<float> x) const;
};

}  // namespace lmtp::model

// Phi 1, 1.5 and 2: https://github.com/huggingface/transformers,
// models/phi/modeling_phi.py
// Against StarCoder 2: attention and MLP read the same normalised input; a part of each head turns;
// the output head has a bias.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(
      json, config,
      {.vocab_size = 51200, .hidden_size = 2048, .mlp_size = 8192, .num_layers = 24, .eos_id = 2});
  config.norm_epsilon = json.positive("layer_norm_eps", 1e-5);
  read_plain_mlp(json, config, "hidden_act", "gelu_new", true);
  for (LayerSpec& layer : config.layers) layer.parallel = layer.one_norm = true;
  if (json.boolean("qk_layernorm", false)) {
    json.refuse("qk_layernorm: layer norms of heads are not supported");
  }
  read_rotary(json, config, {.fraction = "partial_rotary_factor", .default_fraction = 0.5});
}

DecoderForm form(const ModelConfig&) {
  return {.attention_out = "self_attn.dense",
          .up = {"mlp.fc1"},
          .down = "mlp.fc2",
          .final_norm = "final_layernorm",
          .norm = NormKind::kLayer,
          .has_head_bias = true};
}

}  // namespace

const Architecture kPhi = {"phi", "PhiForCausalLM", read_config, form, "phi"};

}  // namespace lmtp::model

// GLM 4 of 2024 and of 2025: https://github.com/huggingface/transformers,
// models/glm/modeling_glm.py
// Against Llama: neighbours in a half of each head turn together; gate and up are one matrix.
// glm4 has norms of results, too.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 151552,
               .context_length = 131072,
               .mlp_size = 13696,
               .num_layers = 40,
               .num_kv_heads = 2,
               .head_dim = 128,
               .norm_epsilon = 1.5625e-7});
  config.eos_ids = {151329, 151336, 151338};
  const bool has_bias = json.boolean("attention_bias", true);
  for (LayerSpec& layer : config.layers) layer.qkv_bias = has_bias;
  read_rotary(json, config, {.fraction = "partial_rotary_factor", .default_fraction = 0.5});
}

void read_glm4(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  for (LayerSpec& layer : config.layers) layer.norms = NormPlaces::kAround;
}

DecoderForm form(const ModelConfig&) {
  return {.up = {"mlp.gate_up_proj"}, .turns_neighbours = true};
}

DecoderForm glm4_form(const ModelConfig& config) {
  DecoderForm glm4 = form(config);
  glm4.attention_result_norm = "post_self_attn_layernorm";
  glm4.mlp_result_norm = "post_mlp_layernorm";
  return glm4;
}

}  // namespace

const Architecture kGlm = {"glm", "GlmForCausalLM", read_config, form};
const Architecture kGlm4 = {"glm4", "Glm4ForCausalLM", read_glm4, glm4_form};

}  // namespace lmtp::model

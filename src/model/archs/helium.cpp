// Helium: https://github.com/huggingface/transformers,
// models/helium/modeling_helium.py
// Against Llama: neighbours in a head turn together.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 48000,
               .context_length = 4096,
               .hidden_size = 2560,
               .mlp_size = 7040,
               .num_layers = 24,
               .num_heads = 20,
               .num_kv_heads = 20,
               .head_dim = 128,
               .norm_epsilon = 1e-8,
               .eos_id = 2});
  const bool attention_bias = json.boolean("attention_bias", false);
  const bool mlp_bias = json.boolean("mlp_bias", false);
  for (LayerSpec& layer : config.layers) {
    layer.qkv_bias = attention_bias;
    layer.mlp_bias = mlp_bias;
  }
  read_rotary(json, config, {.default_theta = 100000.0});
}

DecoderForm form(const ModelConfig&) { return {.turns_neighbours = true}; }

}  // namespace

const Architecture kHelium = {"helium", "HeliumForCausalLM", read_config, form};

}  // namespace lmtp::model

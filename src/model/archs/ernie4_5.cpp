// Ernie 4.5: https://github.com/huggingface/transformers,
// models/ernie4_5/modeling_ernie4_5.py
// Against Llama: neighbours in a head turn together.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 103424,
               .context_length = 131072,
               .hidden_size = 1024,
               .mlp_size = 3072,
               .num_layers = 18,
               .num_heads = 16,
               .num_kv_heads = 2,
               .head_dim = 128,
               .norm_epsilon = 1e-5,
               .tied_embeddings = true,
               .eos_id = 2});
  const bool biases = json.boolean("use_bias", false);
  for (LayerSpec& layer : config.layers) {
    layer.qkv_bias = layer.attention_out_bias = layer.mlp_bias = biases;
  }
  read_rotary(json, config, {.default_theta = 500000.0});
}

DecoderForm form(const ModelConfig&) { return {.turns_neighbours = true}; }

}  // namespace

const Architecture kErnie45 = {"ernie4_5", "Ernie4_5ForCausalLM", read_config, form};

}  // namespace lmtp::model

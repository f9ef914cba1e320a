// Llama 1-3: https://github.com/huggingface/transformers, models/llama/modeling_llama.py
// Against GPT-2: RMS norms, rotary positions, grouped key-value heads, a gated MLP, no biases.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.eos_id = 2});
  read_attention_bias(json, config);
  const bool mlp_bias = json.boolean("mlp_bias", false);
  for (LayerSpec& layer : config.layers) layer.mlp_bias = mlp_bias;
  read_rotary(json, config);
}

}  // namespace

const Architecture kLlama = {"llama", "LlamaForCausalLM", read_config, llama_form};

}  // namespace lmtp::model

// Gemma 1: https://github.com/huggingface/transformers,
// models/gemma/modeling_gemma.py
// Against Llama: norms' weights kept around 0; embeddings scaled by sqrt(hidden_size).
#include <cmath>
#include <string>

#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 256000,
               .context_length = 8192,
               .hidden_size = 3072,
               .mlp_size = 24576,
               .num_layers = 28,
               .num_heads = 16,
               .num_kv_heads = 16,
               .head_dim = 256,
               .tied_embeddings = true,
               .eos_id = 1});
  read_attention_bias(json, config);
  // transformers reads hidden_act alone; "gelu" means its approximation, as in the first configs.
  const std::string activation = json.text("hidden_act", "gelu");
  for (LayerSpec& layer : config.layers) {
    if (activation == "gelu") layer.activation = kernels::Activation::kGeluTanh;
  }
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  read_rotary(json, config);
}

DecoderForm form(const ModelConfig&) { return {.norm_shift = 1.0F}; }

}  // namespace

const Architecture kGemma = {"gemma", "GemmaForCausalLM", read_config, form};

}  // namespace lmtp::model

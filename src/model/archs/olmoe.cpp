// OLMoE: https://github.com/huggingface/transformers, models/olmoe/modeling_olmoe.py
// Against Llama: queries and keys are normalised over all heads; experts in all layers.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 50304,
               .context_length = 4096,
               .hidden_size = 2048,
               .mlp_size = 2048,
               .num_layers = 16,
               .num_heads = 16,
               .norm_epsilon = 1e-5,
               .eos_id = 50279});
  read_attention_bias(json, config);
  refuse_clip_qkv(json);
  read_experts(json, config, {.default_count = 64, .default_top_k = 8});
  config.experts.size = config.mlp_size;
  config.experts.routing.renormalise = json.boolean("norm_topk_prob", false);
  for (LayerSpec& layer : config.layers) {
    layer.query_key_norm = QueryKeyNorm::kWhole;
    layer.sparse = true;
  }
  read_rotary(json, config);
}

}  // namespace

const Architecture kOlmoe = {"olmoe", "OlmoeForCausalLM", read_config, llama_form};

}  // namespace lmtp::model

// Hunyuan's dense models: https://github.com/huggingface/transformers,
// models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py
// Against Llama: heads of queries and keys are normalised once they have turned; "dynamic" rotary
// settings may have an alpha, which stretches the base for all lengths.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.vocab_size = 290943, .norm_epsilon = 1e-5, .eos_id = 2});
  read_attention_bias(json, config);
  if (!json.boolean("use_qk_norm", true) || !json.boolean("use_rotary_pos_emb", true) ||
      json.boolean("use_cla", false)) {
    json.refuse("use_qk_norm, use_rotary_pos_emb, use_cla: allowed are true, true and false");
  }
  for (LayerSpec& layer : config.layers) layer.query_key_norm = QueryKeyNorm::kTurnedHead;
  read_rotary(json, config, {.has_alpha = true});
}

DecoderForm form(const ModelConfig&) {
  return {.query_norm = "self_attn.query_layernorm", .key_norm = "self_attn.key_layernorm"};
}

}  // namespace

const Architecture kHunyuanV1Dense = {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", read_config,
                                      form};

}  // namespace lmtp::model

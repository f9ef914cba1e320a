// StarCoder 1, SantaCoder: https://github.com/huggingface/transformers,
// models/gpt_bigcode/modeling_gpt_bigcode.py
// Against GPT-2: one head of keys and values for all; weights are stored as elsewhere.
#include "archs/archs.h"
#include "archs/common.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_gpt2_sizes(json, config, {.activation = "gelu_pytorch_tanh"});
  config.tied_embeddings = json.boolean("tie_word_embeddings", true);
  if (json.boolean("multi_query", true)) {
    config.num_kv_heads = 1;
  } else {
    config.qkv_parts = config.num_heads;
  }
  if (!json.boolean("scale_attn_weights", true)) {
    for (LayerSpec& layer : config.layers) layer.attention_scale = 1.0F;
  }
}

DecoderForm form(const ModelConfig& config) {
  DecoderForm form = gpt2_form(config);
  form.is_inputs_by_outputs = false;
  return form;
}

}  // namespace

const Architecture kGptBigCode = {"gpt_bigcode", "GPTBigCodeForCausalLM", read_config, form};

}  // namespace lmtp::model

// GPT-Neo: https://github.com/huggingface/transformers,
// models/gpt_neo/modeling_gpt_neo.py
// Against GPT-2: scores are not scaled; every other layer sees a window; three matrices for
// queries, keys and values, without biases.
#include <string>
#include <vector>

#include "archs/archs.h"
#include "archs/common.h"

namespace lmtp::model {
namespace {

void read_attention_types(ConfigReader& json, ModelConfig& config) {
  const int window = static_cast<int>(json.integer({"window_size"}, 256, 1, kContextLengthMax));
  const std::vector<std::string> types = json.texts("attention_layers");
  if (types.empty() && json.is_set("attention_types")) {
    json.refuse_unless_forced("attention_types: is read as attention_layers alone, a name a layer");
  }
  if (!types.empty() && types.size() != config.layers.size()) {
    json.refuse("attention_layers: " + std::to_string(config.num_layers) + " names are expected");
    return;
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const std::string type = !types.empty() ? types[i] : i % 2 == 0 ? "global" : "local";
    if (type != "global" && type != "local") {
      json.refuse("attention_layers: '" + type + "' is not supported; supported are global, local");
      return;
    }
    config.layers[i].window = type == "local" ? window : 0;
  }
}

void read_config(ConfigReader& json, ModelConfig& config) {
  read_gpt2_sizes(json, config,
                  {.context_length = 2048, .hidden_size = 2048, .num_layers = 24, .num_heads = 16});
  config.tied_embeddings = json.boolean("tie_word_embeddings", true);
  for (LayerSpec& layer : config.layers) {
    layer.attention_scale = 1.0F;
    layer.qkv_bias = false;
  }
  read_attention_types(json, config);
}

DecoderForm form(const ModelConfig& config) {
  DecoderForm form = gpt2_form(config);
  form.is_inputs_by_outputs = false;
  form.qkv = {"attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"};
  form.attention_out = "attn.attention.out_proj";
  return form;
}

}  // namespace

const Architecture kGptNeo = {"gpt_neo", "GPTNeoForCausalLM", read_config, form};

}  // namespace lmtp::model

// GPT-Neo: https://github.com/huggingface/transformers,
// models/gpt_neo/modeling_gpt_neo.py
// Against GPT-2: scores are not scaled; every other layer sees a window; three matrices for
// queries, keys and values, without biases.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "archs/archs.h"
#include "archs/common.h"

namespace lmtp::model {
namespace {

// [[["global", "local"], 12]]: the names, as often as that, and so on.
std::vector<std::string> expanded_types(ConfigReader& json, std::size_t num_layers) {
  std::vector<std::string> types;
  const Json* const found = json.value("attention_types");
  if (found == nullptr) return types;
  bool is_right = found->is_array();
  for (const Json& item : *found) {
    const auto times = item.is_array() && item.size() == 2 ? json_integer(item[1]) : std::nullopt;
    is_right = is_right && times.has_value() && item[0].is_array() && !item[0].empty();
    for (std::int64_t i = 0; is_right && i < *times && types.size() <= num_layers; ++i) {
      for (const Json& name : item[0]) {
        is_right = is_right && name.is_string();
        types.push_back(is_right ? name.get<std::string>() : "");
      }
    }
  }
  if (!is_right) {
    json.refuse("attention_types: pairs of a list of names and how often it comes are expected");
  }
  return types;
}

void read_attention_types(ConfigReader& json, ModelConfig& config) {
  const int window = static_cast<int>(json.integer({"window_size"}, 256, 1, kContextLengthMax));
  std::vector<std::string> types = json.texts("attention_layers");
  if (types.empty()) types = expanded_types(json, config.layers.size());
  if (!types.empty() && types.size() != config.layers.size()) {
    json.refuse("attention_layers, or attention_types: " + std::to_string(config.num_layers) +
                " names are expected");
    return;
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const std::string type = !types.empty() ? types[i] : i % 2 == 0 ? "global" : "local";
    if (type != "global" && type != "local") {
      json.refuse("attention_layers, or attention_types: '" + type +
                  "' is not supported; supported are global, local");
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

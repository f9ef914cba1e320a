#include "archs/common.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/attention.h"

namespace lmtp::model {
namespace {

using kernels::Activation;

struct NamedActivation {
  const char* name;
  Activation activation;
};
// By transformers' names.
constexpr NamedActivation kActivations[] = {
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_python_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_accurate", Activation::kGeluTanh},
    {"gelu", Activation::kGeluErf},
    {"gelu_python", Activation::kGeluErf},
    {"gelu_10", {Activation::kClippedGelu, 10.0F}},
    {"quick_gelu", Activation::kQuickGelu},
    {"relu", Activation::kRelu},
    {"relu6", {Activation::kClippedRelu, 6.0F}},
    {"relu2", Activation::kSquaredRelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"xielu", Activation::kXielu},
};

constexpr const char* kSlides = "sliding_attention";
constexpr const char* kFull = "full_attention";

}  // namespace

void read_common(ConfigReader& json, ModelConfig& config, const ConfigDefaults& defaults) {
  const auto size = [&](const char* key, int fallback, int max) {
    return static_cast<int>(json.integer({key}, fallback, 1, max));
  };
  config.vocab_size = size("vocab_size", defaults.vocab_size, kVocabSizeMax);
  config.context_length =
      size("max_position_embeddings", defaults.context_length, kContextLengthMax);
  config.hidden_size = size("hidden_size", defaults.hidden_size, kHiddenSizeMax);
  config.mlp_size = size("intermediate_size", defaults.mlp_size, 4 * kHiddenSizeMax);
  config.num_layers = size("num_hidden_layers", defaults.num_layers, kNumLayersMax);
  config.num_heads = size("num_attention_heads", defaults.num_heads, kHiddenSizeMax);
  // null means num_heads; an absent key means the family's default.
  const bool named = json.has("num_key_value_heads") || defaults.num_kv_heads == 0;
  config.num_kv_heads =
      size("num_key_value_heads", named ? config.num_heads : defaults.num_kv_heads, kHiddenSizeMax);
  const int default_head_dim = json.has("head_dim") || defaults.head_dim == 0
                                   ? config.hidden_size / config.num_heads
                                   : defaults.head_dim;
  config.head_dim =
      size("head_dim", default_head_dim > 0 ? default_head_dim : 1, kernels::kHeadDimMax);
  if (config.num_heads % config.num_kv_heads != 0) {
    json.refuse("num_attention_heads must be a multiple of num_key_value_heads");
  }
  config.norm_epsilon = json.positive("rms_norm_eps", defaults.norm_epsilon);
  LayerSpec layer;
  layer.activation = read_activation(json, "hidden_act", defaults.activation);
  config.layers.assign(static_cast<std::size_t>(config.num_layers), layer);
  config.tied_embeddings = json.boolean("tie_word_embeddings", defaults.tied_embeddings);
  if (defaults.eos_id >= 0) {
    config.eos_ids = {defaults.eos_id};
  }
}

void read_attention_bias(ConfigReader& json, ModelConfig& config) {
  const bool has_bias = json.boolean("attention_bias", false);
  for (LayerSpec& layer : config.layers) layer.qkv_bias = layer.attention_out_bias = has_bias;
}

void refuse_clip_qkv(ConfigReader& json) {
  if (!json.is_set("clip_qkv")) return;
  json.refuse_unless_forced(
      "clip_qkv: queries, keys and values are not clipped here; null is expected");
}

void read_experts(ConfigReader& json, ModelConfig& config, const ExpertKeys& keys) {
  ExpertsConfig& experts = config.experts;
  // transformers 5 writes some families' under other names than 4 does.
  experts.count = static_cast<int>(json.integer({keys.count, "num_experts", "num_local_experts"},
                                                keys.default_count, 1, kernels::kExpertsMax));
  const int most = std::min(experts.count, kernels::kExpertsPerRowMax);
  experts.routing.top_k = static_cast<int>(json.integer(
      {keys.top_k, "num_experts_per_tok"}, std::min(keys.default_top_k, most), 1, most));
}

void read_plain_mlp(ConfigReader& json, ModelConfig& config, const char* activation,
                    const char* fallback, bool biases) {
  const LayerSpec plain{.gated = false,
                        .activation = read_activation(json, activation, fallback),
                        .qkv_bias = biases,
                        .attention_out_bias = biases,
                        .mlp_bias = biases};
  for (LayerSpec& layer : config.layers) layer = plain;
}

kernels::Activation read_activation(ConfigReader& json, const char* key, const char* fallback) {
  const std::string name = json.text(key, fallback);
  std::string known;
  for (const NamedActivation& candidate : kActivations) {
    if (name == candidate.name) return candidate.activation;
    known += std::string(known.empty() ? "" : ", ") + candidate.name;
  }
  json.refuse(std::string(key) + ": '" + name + "' is not supported; supported are " + known);
  return kernels::Activation::kNone;
}

int read_window(ConfigReader& json, int fallback) {
  const int absent = json.has("sliding_window") ? 0 : fallback;
  return std::max(
      0, static_cast<int>(json.integer({"sliding_window"}, absent, -1, kContextLengthMax)));
}

void read_windows(ConfigReader& json, ModelConfig& config, int window,
                  const std::function<bool(int layer)>& fallback) {
  const auto types = json.texts("layer_types");
  if (!types.empty() && types.size() != static_cast<std::size_t>(config.num_layers)) {
    json.refuse("layer_types: " + std::to_string(config.num_layers) + " names are expected");
    return;
  }
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const std::string type = !types.empty()    ? types[static_cast<std::size_t>(layer)]
                             : fallback(layer) ? kSlides
                                               : kFull;
    if (type != kSlides && type != kFull) {
      json.refuse("layer_types: '" + type + "' is not supported; supported are " + kFull + ", " +
                  kSlides);
      return;
    }
    if (type == kSlides && window == 0) {
      json.refuse("sliding_window: layer " + std::to_string(layer) + " needs one, and it has none");
      return;
    }
    config.layers[static_cast<std::size_t>(layer)].window = type == kSlides ? window : 0;
  }
}

void read_windows_but_every(ConfigReader& json, ModelConfig& config, std::int64_t nth) {
  read_windows(json, config, read_window(json, 4096),
               [&](int layer) { return (layer + 1) % nth != 0; });
}

void read_one_window(ConfigReader& json, ModelConfig& config, int fallback) {
  const int window = read_window(json, fallback);
  for (const std::string& type : json.texts("layer_types")) {
    if (type != (window > 0 ? kSlides : kFull)) {
      json.refuse_unless_forced("layer_types: '" + type + "' is not how layers of '" +
                                config.model_type + "' are: by sliding_window all see " +
                                (window > 0 ? std::to_string(window) + " tokens" : "all tokens"));
      break;
    }
  }
  for (LayerSpec& layer : config.layers) layer.window = window;
}

bool normalises_all_heads(const ModelConfig& config) {
  return std::ranges::any_of(config.layers, [](const LayerSpec& layer) {
    return layer.query_key_norm == QueryKeyNorm::kWhole;
  });
}

AttentionShape attention_shape(const ModelConfig& config, int layer) {
  const auto index = static_cast<std::size_t>(layer);
  const LayerSpec& spec = config.layers[index];
  return {.num_heads = config.num_heads,
          .kv = kv_specs(config)[index],
          .scale = spec.attention_scale > 0.0F
                       ? spec.attention_scale
                       : 1.0F / std::sqrt(static_cast<float>(config.head_dim)),
          .soft_cap = spec.attention_soft_cap};
}

}  // namespace lmtp::model

// Keys of config.json that several architectures share.
#pragma once

#include <string>

#include "config_reader.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// What transformers takes where config.json lacks a key.
struct ConfigDefaults {
  int vocab_size = 32000;
  int context_length = 2048;
  int hidden_size = 4096;
  int mlp_size = 11008;
  int num_layers = 32;
  int num_heads = 32;
  int num_kv_heads = 0;  // 0: num_heads
  int head_dim = 0;      // 0: hidden_size / num_heads
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;
  TokenId eos_id = -1;  // -1: none
};

// Sizes, norm_epsilon (rms_norm_eps), activation (hidden_act), tied_embeddings and eos_ids by the
// names that Llama and its relatives use.
void read_common(ConfigReader& json, ModelConfig& config, const ConfigDefaults& defaults);

// The activation of that key; a name that is not known is refused.
kernels::Activation read_activation(ConfigReader& json, const char* key, const char* otherwise);

// Fills config.windows: sliding_window tokens in the layers that layer_types calls
// "sliding_attention", or for which `otherwise(layer)` holds where there is no such list.
template <typename Otherwise>
void read_windows(ConfigReader& json, ModelConfig& config, int window, const Otherwise& otherwise) {
  const auto types = json.texts("layer_types");
  if (!types.empty() && types.size() != static_cast<std::size_t>(config.num_layers)) {
    json.refuse("layer_types: " + std::to_string(config.num_layers) + " names are expected");
    return;
  }
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool slides = types.empty()
                            ? otherwise(layer)
                            : types[static_cast<std::size_t>(layer)] == "sliding_attention";
    config.windows.push_back(slides ? window : 0);
  }
}

}  // namespace lmtp::model

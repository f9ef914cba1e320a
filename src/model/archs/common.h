// Keys of config.json that several architectures share.
#pragma once

#include <functional>

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

// sliding_window; 0: none, for which null, 0 and -1 stand. `usual`: where the key is absent.
int read_window(ConfigReader& json, int usual);

// Fills config.windows: `window` tokens in the layers that layer_types calls "sliding_attention",
// or for which `otherwise(layer)` holds where there is no such list.
void read_windows(ConfigReader& json, ModelConfig& config, int window,
                  const std::function<bool(int layer)>& otherwise);

// The same for a family whose layers all see the same: a layer_types that says otherwise, which
// transformers passes over, is doubted.
void read_one_window(ConfigReader& json, ModelConfig& config, int usual);

}  // namespace lmtp::model

// What several architectures share: keys of config.json, and the sizes of attention.
#pragma once

#include <functional>
#include <string>

#include "config_reader.h"
#include "layers/attention.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

// transformers' defaults for keys that config.json does not have.
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
  const char* activation = "silu";
  bool tied_embeddings = false;
  TokenId eos_id = -1;  // -1: none
};

// Sizes, norm_epsilon (rms_norm_eps), activation (hidden_act), tied_embeddings and eos_ids, under
// the keys of Llama and its relatives.
void read_common(ConfigReader& json, ModelConfig& config, const ConfigDefaults& defaults);

// Biases of attention's matrices: attention_bias.
void read_attention_bias(ConfigReader& json, ModelConfig& config);

// clip_qkv, unless null or forced.
void refuse_clip_qkv(ConfigReader& json);

// The keys of a family's experts, and transformers' defaults. A layer is sparse once its LayerSpec
// says so.
struct ExpertKeys {
  const char* count = "num_experts";
  int default_count = 8;
  const char* top_k = "num_experts_per_tok";
  int default_top_k = 2;
};
void read_experts(ConfigReader& json, ModelConfig& config, const ExpertKeys& keys);

// Makes all layers those of an MLP without a gate, its activation under that key, with `biases`
// everywhere; what else they were set to is lost.
void read_plain_mlp(ConfigReader& json, ModelConfig& config, const char* activation,
                    const char* fallback, bool biases);

// The activation under that key, by transformers' name (kActivations); another is refused.
kernels::Activation read_activation(ConfigReader& json, const char* key, const char* fallback);

// sliding_window; 0: none (null, 0 or -1 in the file). `fallback`: if the key is absent.
int read_window(ConfigReader& json, int fallback);

// Fills the layers' windows: `window` tokens in the layers that layer_types calls
// "sliding_attention"; without layer_types, in those for which `fallback(layer)` is true.
void read_windows(ConfigReader& json, ModelConfig& config, int window,
                  const std::function<bool(int layer)>& fallback);

// The same with sliding_window (4096 where it is absent), for families of which every `nth` layer
// sees all where layer_types does not say.
void read_windows_but_every(ConfigReader& json, ModelConfig& config, std::int64_t nth);

// The same for a family whose layers all have one window. A layer_types that says otherwise, which
// transformers ignores, is refused unless forced.
void read_one_window(ConfigReader& json, ModelConfig& config, int fallback);

// Whether a layer normalises the queries, or the keys, of all heads together.
bool normalises_all_heads(const ModelConfig& config);

// A layer's attention parameters; for a rank, of its rank_config, as all below.
AttentionShape attention_shape(const ModelConfig& config, int layer);

// Columns of the queries, and of attention's result.
inline std::int64_t query_width(const ModelConfig& config) {
  return std::int64_t{config.num_heads} * config.head_dim;
}
// Columns of the keys, or of the values.
inline std::int64_t kv_width(const ModelConfig& config) {
  return std::int64_t{config.num_kv_heads} * config.head_dim;
}

}  // namespace lmtp::model

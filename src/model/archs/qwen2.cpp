// Qwen 2 and 2.5: https://github.com/huggingface/transformers, models/qwen2/modeling_qwen2.py
// Against Llama: biases on queries, keys and values; where use_sliding_window is set, the layers
// from max_window_layers on see a window.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {

void read_qwen_windows(ConfigReader& json, ModelConfig& config, int default_first) {
  const int window = json.boolean("use_sliding_window", false) ? read_window(json, 4096) : 0;
  const auto first = json.integer({"max_window_layers"}, default_first, 0, kNumLayersMax);
  read_windows(json, config, window, [&](int layer) { return window > 0 && layer >= first; });
}

namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(
      json, config,
      {.vocab_size = 151936, .context_length = 32768, .mlp_size = 22016, .num_kv_heads = 32});
  for (LayerSpec& layer : config.layers) layer.qkv_bias = true;
  read_qwen_windows(json, config);
  read_rotary(json, config);
}

}  // namespace

const Architecture kQwen2 = {"qwen2", "Qwen2ForCausalLM", read_config, llama_form};

}  // namespace lmtp::model

// Llama 1-3, CWM, IQuest Coder: https://github.com/huggingface/transformers,
// models/llama/modeling_llama.py, models/cwm/modeling_cwm.py
// Against GPT-2: RMS norms, rotary positions, grouped key-value heads, a gated MLP, no biases. CWM:
// three layers of four see a window. IQuest Coder is Llama by another name.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_biases(ConfigReader& json, ModelConfig& config) {
  read_attention_bias(json, config);
  const bool mlp_bias = json.boolean("mlp_bias", false);
  for (LayerSpec& layer : config.layers) layer.mlp_bias = mlp_bias;
}

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.eos_id = 2});
  read_biases(json, config);
  read_rotary(json, config);
}

void read_cwm(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 128256,
               .context_length = 131072,
               .hidden_size = 6144,
               .mlp_size = 21504,
               .num_layers = 64,
               .num_heads = 48,
               .num_kv_heads = 8,
               .head_dim = 128,
               .norm_epsilon = 1e-5});
  config.eos_ids = {128001, 128008, 128009};
  const bool mlp_bias = json.boolean("mlp_bias", false);
  for (LayerSpec& layer : config.layers) layer.mlp_bias = mlp_bias;
  read_windows(json, config, read_window(json, 8192), [](int layer) { return layer % 4 != 0; });
  if (!json.is_set("rope_parameters") && !json.is_set("rope_scaling")) {
    json.refuse("rope_parameters: is missing, with the settings that transformers writes");
    return;
  }
  read_rotary(json, config, {.default_theta = 1000000.0});
}

void read_iquestcoder(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 76800,
               .context_length = 131072,
               .hidden_size = 5120,
               .mlp_size = 27648,
               .num_layers = 80,
               .num_heads = 40,
               .num_kv_heads = 8,
               .head_dim = 128,
               .norm_epsilon = 1e-5,
               .eos_id = 2});
  read_biases(json, config);
  refuse_clip_qkv(json);
  if (json.boolean("use_sliding_window", false)) {
    json.refuse("use_sliding_window: false is expected, as by transformers");
  }
  read_rotary(json, config);
}

}  // namespace

const Architecture kLlama = {"llama", "LlamaForCausalLM", read_config, llama_form};
const Architecture kCwm = {"cwm", "CwmForCausalLM", read_cwm, llama_form};
const Architecture kIQuestCoder = {
    "iquestcoder", "IQuestCoderForCausalLM", read_iquestcoder, llama_form, "iquestcoder",
    nullptr,       "LlamaForCausalLM"};

}  // namespace lmtp::model

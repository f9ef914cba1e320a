// SmolLM 3: https://github.com/huggingface/transformers,
// models/smollm3/modeling_smollm3.py
// Against Llama: the heads of every fourth layer do not turn.
#include <string>
#include <vector>

#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 128256,
               .context_length = 32768,
               .hidden_size = 2048,
               .num_layers = 36,
               .num_heads = 16,
               .num_kv_heads = 4,
               .tied_embeddings = true,
               .eos_id = 128001});
  read_attention_bias(json, config);
  const bool mlp_bias = json.boolean("mlp_bias", false);
  const auto interval = json.integer({"no_rope_layer_interval"}, 4, 1, kNumLayersMax);
  const std::vector<double> turning = json.numbers("no_rope_layers");  // 0: does not
  if (!turning.empty() && turning.size() != config.layers.size()) {
    json.refuse("no_rope_layers: " + std::to_string(config.num_layers) + " numbers are expected");
    return;
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const bool turns =
        turning.empty() ? (i + 1) % static_cast<std::size_t>(interval) != 0 : turning[i] != 0.0;
    config.layers[i].rotary = turns ? 0 : -1;
    config.layers[i].mlp_bias = mlp_bias;
  }
  const int window = json.boolean("use_sliding_window", false) ? read_window(json, 0) : 0;
  read_windows(json, config, window, [&](int layer) {
    return window > 0 && config.layers[static_cast<std::size_t>(layer)].rotary < 0;
  });
  read_rotary(json, config, {.default_theta = 2000000.0});
}

}  // namespace

const Architecture kSmolLM3 = {"smollm3", "SmolLM3ForCausalLM", read_config, llama_form};

}  // namespace lmtp::model

// EXAONE 4: https://github.com/huggingface/transformers,
// models/exaone4/modeling_exaone4.py
// Against Llama: norms of what attention and the MLP give, before it is added; heads of queries and
// keys are normalised; most layers see a window, and then those that see all do not turn.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 102400,
               .mlp_size = 16384,
               .num_kv_heads = 32,
               .norm_epsilon = 1e-5,
               .eos_id = 2});
  for (LayerSpec& layer : config.layers) {
    layer.norms = NormPlaces::kAfter;
    layer.query_key_norm = QueryKeyNorm::kHead;
  }
  const int window = read_window(json, 4096);
  // A text in the configs of 2025, such as "LLLG"; layer_types stands beside it then.
  const bool is_text = json.is_text("sliding_window_pattern");
  if (is_text && !json.has("layer_types") && json.text("sliding_window_pattern", "") != "LLLG") {
    json.refuse("sliding_window_pattern: a number is expected, or layer_types beside it");
  }
  const auto pattern = is_text ? 4 : json.integer({"sliding_window_pattern"}, 4, 0, kNumLayersMax);
  read_windows(json, config, window,
               [&](int layer) { return window > 0 && pattern > 0 && (layer + 1) % pattern != 0; });
  for (LayerSpec& layer : config.layers) layer.rotary = window == 0 || layer.window > 0 ? 0 : -1;
  read_rotary(json, config);
}

}  // namespace

const Architecture kExaone4 = {"exaone4", "Exaone4ForCausalLM", read_config, llama_form};

}  // namespace lmtp::model

// StableLM: https://github.com/huggingface/transformers,
// models/stablelm/modeling_stablelm.py
// Against Llama: layer norms; a quarter of each head turns; attention and MLP may read the same
// normalised input.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 50304,
               .context_length = 4096,
               .hidden_size = 2560,
               .mlp_size = 6912,
               .num_kv_heads = 32,
               .eos_id = 0});
  config.norm_epsilon = json.positive("layer_norm_eps", 1e-5);
  if (json.boolean("qk_layernorm", false)) {
    json.refuse("qk_layernorm: norms of each head's own are not supported");
  }
  const bool has_bias = json.boolean("use_qkv_bias", false);
  const bool is_parallel = json.boolean("use_parallel_residual", false);
  for (LayerSpec& layer : config.layers) {
    layer.qkv_bias = has_bias;
    layer.parallel = layer.one_norm = is_parallel;
  }
  read_rotary(json, config, {.fraction = "partial_rotary_factor", .default_fraction = 0.25});
}

DecoderForm form(const ModelConfig&) { return {.norm = NormKind::kLayer}; }

}  // namespace

const Architecture kStableLm = {"stablelm", "StableLmForCausalLM", read_config, form};

}  // namespace lmtp::model

// Apertus: https://github.com/huggingface/transformers,
// models/apertus/modeling_apertus.py
// Against Llama: an MLP without a gate, of xIELU, whose numbers each layer has learned; heads of
// queries and keys are normalised; other names of norms.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 131072,
               .context_length = 65536,
               .mlp_size = 14336,
               .norm_epsilon = 1e-5,
               .activation = "xielu",
               .eos_id = 2});
  read_attention_bias(json, config);
  if (!json.boolean("qk_norm", true) || json.boolean("post_norm", false)) {
    json.refuse("qk_norm, post_norm: allowed are true and false");
  }
  for (LayerSpec& layer : config.layers) {
    layer.gated = false;
    layer.query_key_norm = QueryKeyNorm::kHead;
  }
  if (!json.is_set("rope_parameters") && !json.is_set("rope_scaling")) {
    json.refuse(
        "rope_parameters: are missing, which one release of transformers reads as no scaling and "
        "another as Llama 3's; they are needed");
    return;
  }
  read_rotary(json, config, {.default_theta = 12000000.0});
}

DecoderForm form(const ModelConfig&) {
  return {.up = {"mlp.up_proj"},
          .attention_norm = "attention_layernorm",
          .mlp_norm = "feedforward_layernorm"};
}

}  // namespace

const Architecture kApertus = {"apertus", "ApertusForCausalLM", read_config, form};

}  // namespace lmtp::model

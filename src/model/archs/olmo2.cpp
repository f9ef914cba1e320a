// OLMo 1, 2 and 3: https://github.com/huggingface/transformers,
// models/olmo/modeling_olmo.py, models/olmo2/modeling_olmo2.py
// Against Llama: OLMo 1: layer norms without weights. OLMo 2: norms of what attention and the MLP
// give, before it is added; queries and keys are normalised over all heads. OLMo 3: most layers see
// a window, and may turn in another way.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_olmo1(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.vocab_size = 50304, .eos_id = 50279});
  config.norm_epsilon = 1e-5F;
  read_attention_bias(json, config);
  refuse_clip_qkv(json);
  read_rotary(json, config);
}

DecoderForm olmo1_form(const ModelConfig&) { return {.norm = NormKind::kLayerWithoutWeights}; }

// How OLMo 2 and 3 are: norms of results alone, and norms over all heads.
void read_olmo(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.vocab_size = 50304, .norm_epsilon = 1e-5, .eos_id = 50279});
  read_attention_bias(json, config);
  for (LayerSpec& layer : config.layers) {
    layer.norms = NormPlaces::kAfter;
    layer.query_key_norm = QueryKeyNorm::kWhole;
  }
}

void read_olmo2(ConfigReader& json, ModelConfig& config) {
  read_olmo(json, config);
  read_rotary(json, config);
}

void read_olmo3(ConfigReader& json, ModelConfig& config) {
  read_olmo(json, config);
  read_windows_but_every(json, config, 4);
  read_rotary_by_type(json, config, {.default_theta = 500000.0}, {.default_theta = 500000.0});
}

}  // namespace

const Architecture kOlmo = {"olmo", "OlmoForCausalLM", read_olmo1, olmo1_form};
const Architecture kOlmo2 = {"olmo2", "Olmo2ForCausalLM", read_olmo2, llama_form};
const Architecture kOlmo3 = {"olmo3", "Olmo3ForCausalLM", read_olmo3, llama_form};

}  // namespace lmtp::model

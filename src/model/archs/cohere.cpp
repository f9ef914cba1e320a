// Command R, Aya; Command R7B and A: https://github.com/huggingface/transformers,
// models/cohere/modeling_cohere.py
// Against Llama: attention and MLP read the same normalised input; layer norms without bias;
// neighbours in a head turn together; a scale of the logits. cohere2: most layers see a window, and
// those that see all do not turn.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 256000,
               .context_length = 8192,
               .hidden_size = 8192,
               .mlp_size = 22528,
               .num_layers = 40,
               .num_heads = 64,
               .tied_embeddings = true,
               .eos_id = 255001});
  config.norm_epsilon = json.positive("layer_norm_eps", 1e-5);
  config.logit_scale = json.positive("logit_scale", 0.0625);
  read_attention_bias(json, config);
  if (json.boolean("use_qk_norm", false)) {
    json.refuse("use_qk_norm: norms of each head's own are not supported");
  }
  for (LayerSpec& layer : config.layers) layer.parallel = layer.one_norm = true;
}

void read_cohere(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  read_rotary(json, config, {.default_theta = 500000.0});
}

void read_cohere2(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  read_windows_but_every(json, config,
                         json.integer({"sliding_window_pattern"}, 4, 1, kNumLayersMax));
  for (LayerSpec& layer : config.layers) layer.rotary = layer.window > 0 ? 0 : -1;
  read_rotary(json, config);
}

DecoderForm form(const ModelConfig&) {
  return {.norm = NormKind::kLayerWithoutBias, .turns_neighbours = true};
}

}  // namespace

const Architecture kCohere = {"cohere", "CohereForCausalLM", read_cohere, form};
const Architecture kCohere2 = {"cohere2", "Cohere2ForCausalLM", read_cohere2, form};

}  // namespace lmtp::model

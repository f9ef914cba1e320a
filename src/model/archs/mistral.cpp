// Mistral: https://github.com/huggingface/transformers, models/mistral/modeling_mistral.py
// Against Llama: a sliding window in all layers.
#include "archs/archs.h"
#include "archs/llama.h"
#include "rotary_config.h"

namespace lmtp::model {

namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.context_length = 131072, .mlp_size = 14336, .num_kv_heads = 8, .eos_id = 2});
  read_one_window(json, config, 4096);
  read_rotary(json, config);
}

std::unique_ptr<CausalLM> make(const ModelConfig& config, WeightLoader& weights,
                               const ModelSetup& setup) {
  return make_llama_family(config, weights, setup, {});
}

}  // namespace

const Architecture kMistral = {"mistral", "MistralForCausalLM", read_config, make};

}  // namespace lmtp::model

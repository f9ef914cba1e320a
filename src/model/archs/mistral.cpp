// Mistral: https://github.com/huggingface/transformers, models/mistral/modeling_mistral.py
// Against Llama: a sliding window in all layers.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.context_length = 131072, .mlp_size = 14336, .num_kv_heads = 8, .eos_id = 2});
  read_one_window(json, config, 4096);
  read_rotary(json, config);
}

}  // namespace

const Architecture kMistral = {"mistral", "MistralForCausalLM", read_config, llama_form};

}  // namespace lmtp::model

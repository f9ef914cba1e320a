// Mistral, Ministral and Ministral 3: https://github.com/huggingface/transformers,
// models/mistral/modeling_mistral.py, models/ministral3/modeling_ministral3.py
// Against Llama: a sliding window in all layers; in Ministral in some of them. Ministral 3, whose
// layers see all: queries grow with their position.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

constexpr ConfigDefaults kDefaults{
    .context_length = 131072, .mlp_size = 14336, .num_kv_heads = 8, .eos_id = 2};

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, kDefaults);
  read_one_window(json, config, 4096);
  read_rotary(json, config);
}

void read_ministral(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, kDefaults);
  const int window = read_window(json, 4096);
  read_windows(json, config, window, [&](int) { return window > 0; });
  read_rotary(json, config);
}

void read_ministral3(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 131072,
               .context_length = 262144,
               .mlp_size = 14336,
               .num_layers = 34,
               .num_kv_heads = 8,
               .head_dim = 128,
               .norm_epsilon = 1e-5,
               .eos_id = 2});
  read_one_window(json, config, 0);
  if (!json.is_set("rope_parameters")) {
    json.refuse("rope_parameters: is missing, with the settings that transformers writes");
    return;
  }
  read_rotary(json, config, {.queries_grow = true});
}

}  // namespace

const Architecture kMistral = {"mistral", "MistralForCausalLM", read_config, llama_form};
const Architecture kMinistral = {"ministral", "MinistralForCausalLM", read_ministral, llama_form};
const Architecture kMinistral3 = {"ministral3", "Ministral3ForCausalLM", read_ministral3,
                                  llama_form};

}  // namespace lmtp::model

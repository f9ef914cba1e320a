// Phi 3, 3.5 and 4 mini: https://github.com/huggingface/transformers, models/phi3/modeling_phi3.py
// Against Llama: one matrix for queries, keys and values and one for gate and up; only a part of a
// head may turn; a sliding window in all layers; longrope (see rotary_config.h).
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 32064,
               .context_length = 4096,
               .hidden_size = 3072,
               .mlp_size = 8192,
               .norm_epsilon = 1e-5,
               .eos_id = 32000});
  read_one_window(json, config, 0);
  read_rotary(json, config, {.fraction = "partial_rotary_factor", .default_short_context = 4096});
}

DecoderForm form(const ModelConfig&) {
  return {.qkv = {"self_attn.qkv_proj"}, .up = {"mlp.gate_up_proj"}};
}

}  // namespace

const Architecture kPhi3 = {"phi3", "Phi3ForCausalLM", read_config, form, "phi3"};

}  // namespace lmtp::model

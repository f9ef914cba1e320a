// StarCoder 2: https://github.com/huggingface/transformers,
// models/starcoder2/modeling_starcoder2.py
// Against Llama: layer norms, biases, an MLP without a gate.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 49152,
               .context_length = 4096,
               .hidden_size = 3072,
               .mlp_size = 12288,
               .num_layers = 30,
               .num_heads = 24,
               .num_kv_heads = 2,
               .tied_embeddings = true,
               .eos_id = 50256});
  config.norm_epsilon = json.positive("norm_epsilon", 1e-5);
  read_plain_mlp(json, config, "hidden_act", "gelu_pytorch_tanh", json.boolean("use_bias", true));
  read_one_window(json, config, 0);
  read_rotary(json, config);
}

DecoderForm form(const ModelConfig&) {
  return {.up = {"mlp.c_fc"}, .down = "mlp.c_proj", .norm = NormKind::kLayer};
}

}  // namespace

const Architecture kStarcoder2 = {"starcoder2", "Starcoder2ForCausalLM", read_config, form};

}  // namespace lmtp::model

// GPT-J: https://github.com/huggingface/transformers,
// models/gptj/modeling_gptj.py
// Against GPT-2: attention and MLP read the same normalised input; neighbours in a part of each
// head turn together; the output head has a bias.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_gpt2_sizes(json, config,
                  {.vocab_size = 50400,
                   .context_length = 2048,
                   .hidden_size = 4096,
                   .num_layers = 28,
                   .num_heads = 16});
  config.tied_embeddings = json.boolean("tie_word_embeddings", false);
  for (LayerSpec& layer : config.layers) {
    layer.parallel = true;
    layer.qkv_bias = layer.attention_out_bias = false;
  }
  const auto dimensions = json.integer({"rotary_dim"}, 64, 2, kernels::kHeadDimMax);
  add_plain_rotary(json, config, static_cast<int>(dimensions), 10000.0);
}

DecoderForm form(const ModelConfig&) {
  return {.prefix = "transformer.",
          .embedding = "wte",
          .layer = "h.",
          .qkv = {"attn.q_proj", "attn.k_proj", "attn.v_proj"},
          .attention_out = "attn.out_proj",
          .up = {"mlp.fc_in"},
          .down = "mlp.fc_out",
          .attention_norm = "ln_1",
          .mlp_norm = "",
          .final_norm = "ln_f",
          .norm = NormKind::kLayer,
          .has_head_bias = true,
          .turns_neighbours = true};
}

}  // namespace

const Architecture kGptJ = {"gptj", "GPTJForCausalLM", read_config, form};

}  // namespace lmtp::model

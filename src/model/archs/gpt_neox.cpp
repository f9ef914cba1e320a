// GPT-NeoX, Pythia: https://github.com/huggingface/transformers,
// models/gpt_neox/modeling_gpt_neox.py. Differences from GPT-2: rotary positions on a part of each
// head; attention and MLP may read the same input; the one matrix for queries, keys and values is
// by head, [head][q | k | v].
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 50432,
               .hidden_size = 6144,
               .mlp_size = 24576,
               .num_layers = 44,
               .num_heads = 64,
               .eos_id = 2});
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.head_dim * config.num_heads != config.hidden_size) {
    json.refuse("hidden_size must be a multiple of num_attention_heads");
  }
  config.norm_epsilon = json.positive("layer_norm_eps", 1e-5);
  LayerSpec all = config.layers.front();
  all.parallel = json.boolean("use_parallel_residual", true);
  all.gated = false;
  all.activation = read_activation(json, "hidden_act", "gelu");
  all.qkv_bias = all.attention_out_bias = json.boolean("attention_bias", true);
  all.mlp_bias = true;
  for (LayerSpec& layer : config.layers) layer = all;
  config.qkv_parts = config.num_heads;
  read_rotary(json, config,
              {.theta = "rotary_emb_base", .fraction = "rotary_pct", .default_fraction = 0.25});
}

DecoderForm form(const ModelConfig&) {
  return {.prefix = "gpt_neox.",
          .embedding = "embed_in",
          .qkv = {"attention.query_key_value"},
          .attention_out = "attention.dense",
          .up = {"mlp.dense_h_to_4h"},
          .down = "mlp.dense_4h_to_h",
          .final_norm = "final_layer_norm",
          // transformers 5 has the second name in memory, and so in state dicts of torch.save.
          .heads = {"embed_out", "lm_head"},
          .norm = NormKind::kLayer};
}

}  // namespace

const Architecture kGptNeox = {"gpt_neox", "GPTNeoXForCausalLM", read_config, form};

}  // namespace lmtp::model

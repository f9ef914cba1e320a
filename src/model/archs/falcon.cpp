// Falcon: https://github.com/huggingface/transformers,
// models/falcon/modeling_falcon.py
// Against GPT-NeoX: whole heads turn; the matrix of queries, keys and values is by group of heads
// (new_decoder_architecture), by head, or with one head of keys and values (multi_query); tied.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

// How heads share keys and values, and how many norms a layer has.
void read_layers(ConfigReader& json, ModelConfig& config) {
  const bool is_new = json.boolean("new_decoder_architecture", false);
  const bool is_parallel = json.boolean("parallel_attn", true) || is_new;
  const bool has_biases = json.boolean("bias", false);
  const auto num_norms = json.integer({"num_ln_in_parallel_attn"}, is_new ? 2 : 1, 1, 2);
  if (is_parallel && !is_new && num_norms == 2) {
    json.refuse("num_ln_in_parallel_attn: 2 is of new_decoder_architecture alone");
  }
  read_plain_mlp(json, config, "activation", "gelu", has_biases);
  for (LayerSpec& layer : config.layers) {
    layer.parallel = is_parallel;
    layer.one_norm = is_parallel && num_norms == 1;
  }
  const auto num_kv_heads =
      static_cast<int>(json.integer({"num_kv_heads"}, config.num_heads, 1, config.num_heads));
  if (!is_new && json.boolean("multi_query", true)) {
    config.num_kv_heads = 1;
    return;
  }
  if (config.num_heads % num_kv_heads != 0 || (!is_new && num_kv_heads != config.num_heads)) {
    json.refuse(
        "num_kv_heads: num_attention_heads, or of new_decoder_architecture a divisor of "
        "it, is expected");
  }
  config.num_kv_heads = config.qkv_parts = num_kv_heads;
}

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 65024,
               .hidden_size = 4544,
               .num_heads = 71,
               .tied_embeddings = true,
               .eos_id = 11});
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.head_dim * config.num_heads != config.hidden_size) {
    json.refuse("hidden_size must be a multiple of num_attention_heads");
  }
  config.mlp_size = static_cast<int>(
      json.integer({"ffn_hidden_size"}, 4 * config.hidden_size, 1, 4 * kHiddenSizeMax));
  config.norm_epsilon = json.positive("layer_norm_epsilon", 1e-5);
  if (json.boolean("alibi", false)) {
    json.refuse("alibi: scores that fall with the distance are not supported; false is needed");
  }
  read_layers(json, config);
  read_rotary(json, config);
}

DecoderForm form(const ModelConfig& config) {
  DecoderForm form{.prefix = "transformer.",
                   .embedding = "word_embeddings",
                   .layer = "h.",
                   .qkv = {"self_attention.query_key_value"},
                   .attention_out = "self_attention.dense",
                   .up = {"mlp.dense_h_to_4h"},
                   .down = "mlp.dense_4h_to_h",
                   .final_norm = "ln_f",
                   .norm = NormKind::kLayer};
  const LayerSpec& layer = config.layers.front();
  if (layer.parallel && !layer.one_norm) {
    form.attention_norm = "ln_attn";
    form.mlp_norm = "ln_mlp";
  }
  return form;
}

}  // namespace

const Architecture kFalcon = {"falcon", "FalconForCausalLM", read_config, form, "falcon"};

}  // namespace lmtp::model

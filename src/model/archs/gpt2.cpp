// GPT-2, GPT-1: https://github.com/huggingface/transformers, models/gpt2/modeling_gpt2.py,
// models/openai/modeling_openai.py
// Against Llama: learned positions added to the embedding, layer norms with bias, one matrix for
// queries, keys and values, weights stored [inputs, outputs], a plain two-matrix MLP. GPT-1: norms
// of sums.
#include <cmath>

#include "archs/archs.h"
#include "archs/common.h"

namespace lmtp::model {

void read_gpt2_sizes(ConfigReader& json, ModelConfig& config, const Gpt2Defaults& defaults) {
  const auto size = [&](std::initializer_list<const char*> keys, int fallback, int max) {
    return static_cast<int>(json.integer(keys, fallback, 1, max));
  };
  config.vocab_size = size({"vocab_size"}, defaults.vocab_size, kVocabSizeMax);
  config.context_length = size({"n_positions", "max_position_embeddings", "n_ctx"},
                               defaults.context_length, kContextLengthMax);
  config.hidden_size = size({"n_embd", "hidden_size"}, defaults.hidden_size, kHiddenSizeMax);
  config.num_layers =
      size({"n_layer", "num_hidden_layers", "num_layers"}, defaults.num_layers, kNumLayersMax);
  config.num_heads =
      size({"n_head", "num_attention_heads", "num_heads"}, defaults.num_heads, kHiddenSizeMax);
  config.num_kv_heads = config.num_heads;
  config.mlp_size =
      size({"n_inner", "intermediate_size"}, 4 * config.hidden_size, 4 * kHiddenSizeMax);
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.head_dim * config.num_heads != config.hidden_size) {
    json.refuse("n_embd must be a multiple of n_head");
  }
  config.norm_epsilon = json.positive("layer_norm_epsilon", 1e-5);
  config.eos_ids = {50256};
  const LayerSpec layer{
      .gated = false,
      .activation = read_activation(json, "activation_function", defaults.activation),
      .qkv_bias = true,
      .attention_out_bias = true,
      .mlp_bias = true};
  config.layers.assign(static_cast<std::size_t>(config.num_layers), layer);
}

DecoderForm gpt2_form(const ModelConfig&) {
  return {.prefix = "transformer.",
          .embedding = "wte",
          .positions = "wpe",
          .layer = "h.",
          .qkv = {"attn.c_attn"},
          .attention_out = "attn.c_proj",
          .up = {"mlp.c_fc"},
          .down = "mlp.c_proj",
          .attention_norm = "ln_1",
          .mlp_norm = "ln_2",
          .final_norm = "ln_f",
          .norm = NormKind::kLayer,
          .is_inputs_by_outputs = true,
          .begins_small = true};
}

namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_gpt2_sizes(json, config, {});
  config.tied_embeddings = json.boolean("tie_word_embeddings", true);
  // reorder_and_upcast_attn changes the rounding of half precision only: in f32 it is the same sum.
  const bool is_scaled = json.boolean("scale_attn_weights", true);
  const bool by_layer = json.boolean("scale_attn_by_inverse_layer_idx", false);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    float& scale = config.layers[i].attention_scale;
    scale = is_scaled ? 1.0F / std::sqrt(static_cast<float>(config.head_dim)) : 1.0F;
    if (by_layer) scale /= static_cast<float>(i + 1);
  }
}

void read_gpt1(ConfigReader& json, ModelConfig& config) {
  read_gpt2_sizes(json, config, {.vocab_size = 40478, .context_length = 512});
  config.eos_ids = {};
  config.tied_embeddings = json.boolean("tie_word_embeddings", true);
  config.final_norm = false;
  // "gelu" means its approximation.
  const bool is_gelu = json.text("afn", "gelu") == "gelu";
  const auto activation = is_gelu ? kernels::Activation(kernels::Activation::kGeluTanh)
                                  : read_activation(json, "afn", "");
  for (LayerSpec& layer : config.layers) {
    layer.norms = NormPlaces::kAfterSum;
    layer.activation = activation;
  }
}

DecoderForm gpt1_form(const ModelConfig& config) {
  DecoderForm gpt1 = gpt2_form(config);
  gpt1.embedding = "tokens_embed";
  gpt1.positions = "positions_embed";
  gpt1.attention_result_norm = "ln_1";
  gpt1.mlp_result_norm = "ln_2";
  return gpt1;
}

}  // namespace

const Architecture kGpt1 = {"openai-gpt", "OpenAIGPTLMHeadModel", read_gpt1, gpt1_form};
const Architecture kGpt2 = {"gpt2", "GPT2LMHeadModel", read_config, gpt2_form};

}  // namespace lmtp::model

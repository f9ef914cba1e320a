// OPT, BioGPT: https://github.com/huggingface/transformers, models/opt/modeling_opt.py,
// models/biogpt/modeling_biogpt.py
// Against GPT-2: the position table begins with two rows of another use; three matrices for
// queries, keys and values; ReLU; in the 350m model narrower embeddings and norms behind, not
// before.
#include <cmath>

#include "archs/archs.h"
#include "archs/common.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 50272,
               .hidden_size = 768,
               .num_layers = 12,
               .num_heads = 12,
               .tied_embeddings = true,
               .eos_id = 2});
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.head_dim * config.num_heads != config.hidden_size) {
    json.refuse("hidden_size must be a multiple of num_attention_heads");
  }
  config.mlp_size = static_cast<int>(json.integer({"ffn_dim"}, 3072, 1, 4 * kHiddenSizeMax));
  config.norm_epsilon = 1e-5F;
  const bool is_first = json.boolean("do_layer_norm_before", true);
  config.final_norm = is_first && !json.boolean("_remove_final_layer_norm", false);
  const bool biases = json.boolean("enable_bias", true);
  const LayerSpec all{.norms = is_first ? NormPlaces::kBefore : NormPlaces::kAfterSum,
                      .gated = false,
                      .activation = read_activation(json, "activation_function", "relu"),
                      .qkv_bias = biases,
                      .attention_out_bias = biases,
                      .mlp_bias = biases};
  for (LayerSpec& layer : config.layers) layer = all;
  config.embedding_size = static_cast<int>(
      json.integer({"word_embed_proj_dim"}, config.hidden_size, 1, kHiddenSizeMax));
  if (!json.boolean("layer_norm_elementwise_affine", true)) {
    json.refuse("layer_norm_elementwise_affine: false is not supported");
  }
}

// Besides, embeddings are scaled; GELU.
void read_biogpt(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 42384,
               .context_length = 1024,
               .hidden_size = 1024,
               .mlp_size = 4096,
               .num_layers = 24,
               .num_heads = 16,
               .activation = "gelu",
               .tied_embeddings = true,
               .eos_id = 2});
  config.norm_epsilon = 1e-5F;  // layer_norm_eps has no effect in transformers
  read_plain_mlp(json, config, "hidden_act", "gelu", true);
  if (json.boolean("scale_embedding", true)) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  }
}

DecoderForm form(const ModelConfig&) {
  return {.prefix = "model.decoder.",
          .positions = "embed_positions",
          .position_offset = 2,
          .attention_out = "self_attn.out_proj",
          .up = {"fc1"},
          .down = "fc2",
          .attention_norm = "self_attn_layer_norm",
          .mlp_norm = "final_layer_norm",
          .attention_result_norm = "self_attn_layer_norm",
          .mlp_result_norm = "final_layer_norm",
          .final_norm = "final_layer_norm",
          .norm = NormKind::kLayer};
}

DecoderForm biogpt_form(const ModelConfig& config) {
  DecoderForm biogpt = form(config);
  biogpt.prefix = "biogpt.";
  biogpt.final_norm = "layer_norm";
  biogpt.heads = {"output_projection"};
  return biogpt;
}

}  // namespace

const Architecture kBioGpt = {"biogpt", "BioGptForCausalLM", read_biogpt, biogpt_form};
const Architecture kOpt = {"opt", "OPTForCausalLM", read_config, form};

}  // namespace lmtp::model

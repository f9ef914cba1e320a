// OPT: https://github.com/huggingface/transformers, models/opt/modeling_opt.py
// Against GPT-2: the position table begins with two rows of another use; three matrices for
// queries, keys and values; ReLU; in the 350m model narrower embeddings and norms behind, not
// before.
#include <string>
#include <utility>

#include "archs/archs.h"
#include "archs/common.h"
#include "archs/gpt2.h"
#include "layers/load.h"

namespace lmtp::model {
namespace {

constexpr int kPositionOffset = 2;

Gpt2Layer load_layer(WeightLoader& in, const ModelConfig& config, int index) {
  const std::string name = "layers." + std::to_string(index) + ".";
  const int hidden = config.hidden_size;
  const bool biases = config.mlp_bias;
  Gpt2Layer layer;
  layer.attention_norm =
      load_layer_norm(in, name + "self_attn_layer_norm", hidden, config.norm_epsilon);
  layer.qkv =
      load_linear(in, qkv_parts(config, name + "self_attn.", {"q_proj", "k_proj", "v_proj"}),
                  hidden, Split::kOutputs, biases);
  layer.attention_out = load_linear(in, {{name + "self_attn.out_proj", {hidden}}},
                                    query_width(config), Split::kInputs, biases);
  layer.mlp_norm = load_layer_norm(in, name + "final_layer_norm", hidden, config.norm_epsilon);
  layer.mlp_up =
      load_linear(in, {{name + "fc1", {config.mlp_size}}}, hidden, Split::kOutputs, biases);
  layer.mlp_down =
      load_linear(in, {{name + "fc2", {hidden}}}, config.mlp_size, Split::kInputs, biases);
  layer.shape = attention_shape(config, index);
  layer.activation = config.activation;
  layer.norm_first = config.norm_first;
  return layer;
}

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
  config.activation = read_activation(json, "activation_function", "relu");
  config.norm_epsilon = 1e-5F;
  config.norm_first = json.boolean("do_layer_norm_before", true);
  config.final_norm = config.norm_first && !json.boolean("_remove_final_layer_norm", false);
  config.mlp_bias = json.boolean("enable_bias", true);
  config.embedding_size = static_cast<int>(
      json.integer({"word_embed_proj_dim"}, config.hidden_size, 1, kHiddenSizeMax));
  if (!json.boolean("layer_norm_elementwise_affine", true)) {
    json.refuse("layer_norm_elementwise_affine: false is not supported");
  }
}

std::unique_ptr<CausalLM> make(const ModelConfig& config, WeightLoader& in,
                               const ModelSetup& setup) {
  using Model = DecoderLM<Gpt2Layer, LayerNorm>;
  Model::Parts parts;
  const int hidden = config.hidden_size;
  const int width = config.embedding_size;
  in.find_prefix("embed_tokens.weight", "model.decoder.");
  parts.token_embedding = load_embedding(in, "embed_tokens.weight", config.vocab_size, width);
  parts.position_embedding = in.plain("embed_positions.weight",
                                      {config.context_length + kPositionOffset, hidden}, kNormal);
  parts.position_offset = kPositionOffset;
  if (width != hidden) {
    parts.project_in = load_linear(in, {{"project_in", {hidden}}}, width, Split::kNone, false);
    parts.project_out = load_linear(in, {{"project_out", {width}}}, hidden, Split::kNone, false);
  }
  for (int index = 0; index < config.num_layers; ++index) {
    parts.layers.push_back(load_layer(in, config, index));
  }
  if (config.final_norm) {
    parts.final_norm = load_layer_norm(in, "final_layer_norm", hidden, config.norm_epsilon);
  }
  if (!config.tied_embeddings) {
    in.find_prefix("lm_head.weight", "");
    parts.head = load_embedding(in, "lm_head.weight", config.vocab_size, width);
  }
  return std::make_unique<Model>(config, std::move(parts), in, setup);
}

}  // namespace

const Architecture kOpt = {"opt", "OPTForCausalLM", read_config, make};

}  // namespace lmtp::model

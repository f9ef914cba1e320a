// GPT-2: https://github.com/huggingface/transformers, src/transformers/models/gpt2/modeling_gpt2.py
// Against Llama: learned positions added to the embedding, layer norms with bias, one matrix for
// queries, keys and values, weights stored [inputs, outputs], a plain two-matrix MLP.
#include "archs/gpt2.h"

#include <cmath>
#include <string>
#include <utility>

#include "archs/archs.h"
#include "archs/common.h"
#include "layers/load.h"

namespace lmtp::model {

std::int64_t Gpt2Layer::floats_per_token(const ModelConfig& config) {
  return config.hidden_size + 2 * query_width(config) + 2 * kv_width(config) + config.mlp_size;
}

void Gpt2Layer::forward(const StepContext& step, const kernels::KvLayer& cache,
                        kernels::Matrix<float> x) const {
  kernels::Stream& stream = step.stream;
  const std::int64_t width = shape.query_width();
  const auto normed = step.workspace.take(x.rows, x.columns);              // [m, hidden]
  const auto projected = step.workspace.take(x.rows, 3 * width);           // [m, q | k | v]
  const auto attended = step.workspace.take(x.rows, width);                // [m, heads]
  const auto widened = step.workspace.take(x.rows, mlp_up.num_outputs());  // [m, mlp_size]
  using kernels::LinearPrologue;
  const auto input = norm_first ? normed : x;
  const auto before = [&](const LayerNorm& norm) {
    return norm_first ? LinearPrologue(norm.of(x, normed)) : LinearPrologue();
  };
  qkv(step, input, projected, {.prologue = before(attention_norm)});
  attend(step, shape, cache, projected.slice_columns(0, width),
         projected.slice_columns(width, width), projected.slice_columns(2 * width, width),
         attended);
  attention_out(step, attended, x, {.residual = x});
  if (!norm_first) attention_norm(stream, x, x);
  mlp_up(step, input, widened, {.activation = activation, .prologue = before(mlp_norm)});
  mlp_down(step, widened, x, {.residual = x});
  if (!norm_first) mlp_norm(stream, x, x);
}

namespace {

// A Conv1D: a linear layer whose weight is stored [inputs, outputs].
Linear load_conv1d(WeightLoader& in, std::vector<WeightPart> parts, std::int64_t k, Split split,
                   TensorInit init) {
  return load_linear(in,
                     {.parts = std::move(parts),
                      .k = k,
                      .init = init,
                      .split = split,
                      .order = kernels::WeightOrder::kInputsByOutputs},
                     true);
}

Gpt2Layer load_layer(WeightLoader& in, const ModelConfig& config, int index) {
  const std::string name = "h." + std::to_string(index) + ".";
  const int hidden = config.hidden_size;
  // Outputs that are added to the residual are initialised smaller, by the number of additions.
  const TensorInit residual{.deviation =
                                0.02F / std::sqrt(2.0F * static_cast<float>(config.num_layers))};
  Gpt2Layer layer;
  layer.attention_norm = load_layer_norm(in, name + "ln_1", hidden, config.norm_epsilon);
  layer.qkv = load_conv1d(in, qkv_parts(config, name + "attn.", {"c_attn"}), hidden,
                          Split::kOutputs, kNormal);
  layer.attention_out = load_conv1d(in, {{name + "attn.c_proj", {hidden}}}, query_width(config),
                                    Split::kInputs, residual);
  layer.mlp_norm = load_layer_norm(in, name + "ln_2", hidden, config.norm_epsilon);
  layer.mlp_up =
      load_conv1d(in, {{name + "mlp.c_fc", {config.mlp_size}}}, hidden, Split::kOutputs, kNormal);
  layer.mlp_down =
      load_conv1d(in, {{name + "mlp.c_proj", {hidden}}}, config.mlp_size, Split::kInputs, residual);
  layer.activation = config.activation;
  layer.shape = attention_shape(config, index);
  if (!config.scale_attention) layer.shape.scale = 1.0F;
  if (config.scale_attention_by_layer) layer.shape.scale /= static_cast<float>(index + 1);
  return layer;
}

void read_config(ConfigReader& json, ModelConfig& config) {
  const auto size = [&](std::initializer_list<const char*> keys, int fallback, int max) {
    return static_cast<int>(json.integer(keys, fallback, 1, max));
  };
  config.vocab_size = size({"vocab_size"}, 50257, kVocabSizeMax);
  config.context_length =
      size({"n_positions", "max_position_embeddings", "n_ctx"}, 1024, kContextLengthMax);
  config.hidden_size = size({"n_embd", "hidden_size"}, 768, kHiddenSizeMax);
  config.num_layers = size({"n_layer", "num_hidden_layers"}, 12, kNumLayersMax);
  config.num_heads = size({"n_head", "num_attention_heads"}, 12, kHiddenSizeMax);
  config.num_kv_heads = config.num_heads;
  config.mlp_size = size({"n_inner"}, 4 * config.hidden_size, 4 * kHiddenSizeMax);
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.head_dim * config.num_heads != config.hidden_size) {
    json.refuse("n_embd must be a multiple of n_head");
  }
  config.activation = read_activation(json, "activation_function", "gelu_new");
  config.norm_epsilon = static_cast<float>(json.number("layer_norm_epsilon", 1e-5));
  config.scale_attention = json.boolean("scale_attn_weights", true);
  config.scale_attention_by_layer = json.boolean("scale_attn_by_inverse_layer_idx", false);
  config.tied_embeddings = json.boolean("tie_word_embeddings", true);
  config.eos_ids = {50256};
  // reorder_and_upcast_attn changes the rounding of half precision only: in f32 it is the same sum.
}

std::unique_ptr<CausalLM> make(const ModelConfig& config, WeightLoader& weights,
                               const ModelSetup& setup) {
  weights.find_prefix("wte.weight", "transformer.");
  const int vocab = config.vocab_size;
  const int hidden = config.hidden_size;
  DecoderLM<Gpt2Layer, LayerNorm>::Parts parts;
  parts.token_embedding = load_embedding(weights, "wte.weight", vocab, hidden);
  parts.position_embedding = weights.plain("wpe.weight", {config.context_length, hidden}, kNormal);
  for (int index = 0; index < config.num_layers; ++index) {
    parts.layers.push_back(load_layer(weights, config, index));
  }
  parts.final_norm = load_layer_norm(weights, "ln_f", hidden, config.norm_epsilon);
  if (!config.tied_embeddings) {
    weights.find_prefix("lm_head.weight", "");
    parts.head = load_embedding(weights, "lm_head.weight", vocab, hidden);
  }
  return std::make_unique<DecoderLM<Gpt2Layer, LayerNorm>>(config, std::move(parts), weights,
                                                           setup);
}

}  // namespace

const Architecture kGpt2 = {"gpt2", "GPT2LMHeadModel", read_config, make};

}  // namespace lmtp::model

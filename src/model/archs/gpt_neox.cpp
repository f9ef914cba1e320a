// GPT-NeoX, Pythia: https://github.com/huggingface/transformers,
// models/gpt_neox/modeling_gpt_neox.py. Differences from GPT-2: rotary positions on a part of each
// head; attention and MLP may read the same input; the one matrix for queries, keys and values is
// by head, [head][q | k | v].
#include <string>
#include <utility>

#include "archs/archs.h"
#include "archs/common.h"
#include "decoder_lm.h"
#include "layers/load.h"
#include "layers/norm.h"
#include "layers/rotary.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

struct GptNeoxLayer {
  LayerNorm attention_norm;
  Linear qkv;
  Linear attention_out;
  LayerNorm mlp_norm;
  Linear mlp_up;
  Linear mlp_down;
  AttentionShape shape;
  kernels::Activation activation;
  bool parallel_residual = true;

  static std::int64_t floats_per_token(const ModelConfig& config) {
    return 2 * std::int64_t{config.hidden_size} + 4 * query_width(config) + config.mlp_size;
  }

  // x: [m, hidden_size] f32, in place
  void forward(const StepContext& step, const kernels::KvLayer& cache,
               kernels::Matrix<float> x) const {
    kernels::Stream& stream = step.stream;
    const std::int64_t width = shape.query_width();
    const int head_dim = shape.kv.head_dim;
    const auto normed = step.workspace.take(x.rows, x.columns);     // [m, hidden]
    const auto mlp_input = step.workspace.take(x.rows, x.columns);  // [m, hidden]
    const auto projected = step.workspace.take(x.rows, 3 * width);  // [m, q | k | v]
    const auto attended = step.workspace.take(x.rows, width);       // [m, heads]
    const auto widened = step.workspace.take(x.rows, mlp_up.num_outputs());
    const auto queries = projected.slice_columns(0, width);
    const auto keys = projected.slice_columns(width, width);
    if (parallel_residual) mlp_norm(stream, x, mlp_input);
    qkv(step, normed, projected, {.prologue = attention_norm.of(x, normed)});
    rotate(step, head_dim, projected.slice_columns(0, 2 * width));
    attend(step, shape, cache, queries, keys, projected.slice_columns(2 * width, width), attended);
    attention_out(step, attended, x, {.residual = x});
    LinearExtras up{.activation = activation};
    if (!parallel_residual) up.prologue = mlp_norm.of(x, mlp_input);
    mlp_up(step, mlp_input, widened, up);
    mlp_down(step, widened, x, {.residual = x});
  }
};

// Output i of [q | k | v] is the checkpoint's output order[i].
std::vector<std::int64_t> qkv_order(const ModelConfig& config) {
  std::vector<std::int64_t> order;
  for (std::int64_t part = 0; part < 3; ++part) {
    for (std::int64_t head = 0; head < config.num_heads; ++head) {
      for (std::int64_t d = 0; d < config.head_dim; ++d) {
        order.push_back((head * 3 + part) * config.head_dim + d);
      }
    }
  }
  return order;
}

GptNeoxLayer load_layer(WeightLoader& in, const ModelConfig& config, int index) {
  const std::string name = "layers." + std::to_string(index) + ".";
  const int hidden = config.hidden_size;
  GptNeoxLayer layer;
  layer.attention_norm = load_layer_norm(in, name + "input_layernorm", hidden, config.norm_epsilon);
  // The share of a rank: whole heads, one behind another.
  layer.qkv = load_linear(in, {{name + "attention.query_key_value", {3 * query_width(config)}}},
                          hidden, Split::kOutputs, config.qkv_bias, qkv_order(config));
  layer.attention_out = load_linear(in, {{name + "attention.dense", {hidden}}}, query_width(config),
                                    Split::kInputs, config.attention_out_bias);
  layer.mlp_norm =
      load_layer_norm(in, name + "post_attention_layernorm", hidden, config.norm_epsilon);
  layer.mlp_up = load_linear(in, {{name + "mlp.dense_h_to_4h", {config.mlp_size}}}, hidden,
                             Split::kOutputs, true);
  layer.mlp_down = load_linear(in, {{name + "mlp.dense_4h_to_h", {hidden}}}, config.mlp_size,
                               Split::kInputs, true);
  layer.shape = attention_shape(config, index);
  layer.activation = config.activation;
  layer.parallel_residual = config.parallel_residual;
  return layer;
}

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
  config.norm_epsilon = static_cast<float>(json.number("layer_norm_eps", 1e-5));
  config.activation = read_activation(json, "hidden_act", "gelu");
  config.qkv_bias = config.attention_out_bias = json.boolean("attention_bias", true);
  config.parallel_residual = json.boolean("use_parallel_residual", true);
  read_rotary(json, config,
              {.theta = "rotary_emb_base", .fraction = "rotary_pct", .default_fraction = 0.25});
}

std::unique_ptr<CausalLM> make(const ModelConfig& config, WeightLoader& in,
                               const ModelSetup& setup) {
  using Model = DecoderLM<GptNeoxLayer, LayerNorm>;
  Model::Parts parts;
  in.find_prefix("embed_in.weight", "gpt_neox.");
  parts.token_embedding =
      load_embedding(in, "embed_in.weight", config.vocab_size, config.hidden_size);
  for (int index = 0; index < config.num_layers; ++index) {
    parts.layers.push_back(load_layer(in, config, index));
  }
  parts.final_norm =
      load_layer_norm(in, "final_layer_norm", config.hidden_size, config.norm_epsilon);
  if (!config.tied_embeddings) {
    // transformers 5 has another name in memory, and so in state dicts that torch.save wrote.
    std::string head = "embed_out.weight";
    if (!in.find_prefix(head, "") && in.find_prefix("lm_head.weight", "")) head = "lm_head.weight";
    parts.head = load_embedding(in, head, config.vocab_size, config.hidden_size);
  }
  return std::make_unique<Model>(config, std::move(parts), in, setup);
}

}  // namespace

const Architecture kGptNeox = {"gpt_neox", "GPTNeoXForCausalLM", read_config, make};

}  // namespace lmtp::model

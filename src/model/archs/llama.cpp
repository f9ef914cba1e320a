// Llama 1-3: https://github.com/huggingface/transformers, models/llama/modeling_llama.py
// Against GPT-2: RMS norms, rotary positions, grouped key-value heads, a gated MLP, no biases.
#include "archs/llama.h"

#include <utility>

#include "archs/archs.h"
#include "layers/load.h"
#include "layers/rotary.h"
#include "rotary_config.h"

namespace lmtp::model {

std::int64_t LlamaLayer::floats_per_token(const ModelConfig& config) {
  return config.hidden_size + 2 * query_width(config) + 2 * kv_width(config) +
         2 * std::int64_t{config.mlp_size};
}

kernels::Matrix<const float> GroupedAttention::operator()(const StepContext& step,
                                                          const kernels::KvLayer& cache,
                                                          const kernels::RmsNormArgs& norm) const {
  kernels::Stream& stream = step.stream;
  const std::int64_t rows = norm.x.rows;
  const std::int64_t query_width = shape.query_width();
  const std::int64_t kv_width = shape.kv.width();
  const auto projected = step.workspace.take(rows, query_width + 2 * kv_width);  // [m, q | k | v]
  const auto attended = step.workspace.take(rows, query_width);
  const auto queries = projected.slice_columns(0, query_width);
  const auto keys = projected.slice_columns(query_width, kv_width);
  const auto values = projected.slice_columns(query_width + kv_width, kv_width);
  qkv(step, norm.y, projected, {.prologue = norm});
  if (query_norm.has_value()) {
    (*query_norm)(stream, queries, queries, shape.num_heads);
    (*key_norm)(stream, keys, keys, shape.kv.num_heads);
  }
  rotate(step, shape.kv.head_dim, projected.slice_columns(0, query_width + kv_width));
  attend(step, shape, cache, queries, keys, values, attended);
  return attended;
}

kernels::GatedActivationArgs GatedMlp::operator()(const StepContext& step,
                                                  const kernels::RmsNormArgs& norm) const {
  const std::int64_t width = gate_up.num_outputs();
  const auto widened = step.workspace.take(norm.x.rows, width);  // [m, gate | up]
  gate_up(step, norm.y, widened, {.prologue = norm});
  return {.x = widened, .activation = activation, .y = widened.slice_columns(0, width / 2)};
}

void LlamaLayer::forward(const StepContext& step, const kernels::KvLayer& cache,
                         kernels::Matrix<float> x) const {
  const auto normed = step.workspace.take(x.rows, x.columns);  // [m, hidden]
  attention_out(step, attention(step, cache, attention_norm.of(x, normed)), x, {.residual = x});
  const kernels::GatedActivationArgs gate = mlp(step, mlp_norm.of(x, normed));
  down(step, gate.y, x, {.residual = x, .prologue = gate});
}

std::vector<WeightPart> gate_up_parts(const ModelConfig& config, const std::string& prefix,
                                      const std::vector<std::string>& names) {
  if (names.size() == 1) return {{prefix + names[0], {config.mlp_size, config.mlp_size}}};
  return {{prefix + names[0], {config.mlp_size}}, {prefix + names[1], {config.mlp_size}}};
}

namespace {

LlamaLayer load_layer(WeightLoader& in, const ModelConfig& config, int index,
                      const LlamaNames& names) {
  const std::string name = "layers." + std::to_string(index) + ".";
  const std::string attention = name + "self_attn.";
  const int hidden = config.hidden_size;
  const float epsilon = config.norm_epsilon;
  LlamaLayer layer;
  layer.attention_norm = load_rms_norm(in, name + "input_layernorm", hidden, epsilon);
  layer.attention.qkv = load_linear(in, qkv_parts(config, attention, names.qkv), hidden,
                                    Split::kOutputs, config.qkv_bias);
  if (config.query_key_norm) {
    layer.attention.query_norm = load_rms_norm(in, attention + "q_norm", config.head_dim, epsilon);
    layer.attention.key_norm = load_rms_norm(in, attention + "k_norm", config.head_dim, epsilon);
  }
  layer.attention_out = load_linear(in, {{attention + "o_proj", {hidden}}}, query_width(config),
                                    Split::kInputs, config.attention_out_bias);
  layer.mlp_norm = load_rms_norm(in, name + "post_attention_layernorm", hidden, epsilon);
  layer.mlp.gate_up = load_linear(in, gate_up_parts(config, name + "mlp.", names.gate_up), hidden,
                                  Split::kOutputs, config.mlp_bias);
  layer.down = load_linear(in, {{name + "mlp.down_proj", {hidden}}}, config.mlp_size,
                           Split::kInputs, config.mlp_bias);
  layer.attention.shape = attention_shape(config, index);
  layer.mlp.activation = config.activation;
  return layer;
}

}  // namespace

std::unique_ptr<CausalLM> make_llama_family(const ModelConfig& config, WeightLoader& in,
                                            const ModelSetup& setup, const LlamaNames& names) {
  using Model = DecoderLM<LlamaLayer, RmsNorm>;
  Model::Parts parts;
  in.find_prefix("embed_tokens.weight", "model.");
  parts.token_embedding =
      load_embedding(in, "embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (int index = 0; index < config.num_layers; ++index) {
    parts.layers.push_back(load_layer(in, config, index, names));
  }
  parts.final_norm = load_rms_norm(in, "norm", config.hidden_size, config.norm_epsilon);
  if (!config.tied_embeddings) {
    in.find_prefix("lm_head.weight", "");
    parts.head = load_embedding(in, "lm_head.weight", config.vocab_size, config.hidden_size);
  }
  return std::make_unique<Model>(config, std::move(parts), in, setup);
}

namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.eos_id = 2});
  config.qkv_bias = config.attention_out_bias = json.boolean("attention_bias", false);
  config.mlp_bias = json.boolean("mlp_bias", false);
  read_rotary(json, config);
}

std::unique_ptr<CausalLM> make(const ModelConfig& config, WeightLoader& weights,
                               const ModelSetup& setup) {
  return make_llama_family(config, weights, setup, {});
}

}  // namespace

const Architecture kLlama = {"llama", "LlamaForCausalLM", read_config, make};

}  // namespace lmtp::model

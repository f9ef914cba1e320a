// Gemma 2: https://github.com/huggingface/transformers, models/gemma2/modeling_gemma2.py
// Against Llama: norms also behind attention and MLP, their weights kept around 0; embeddings
// scaled by sqrt(hidden_size); soft caps on scores and logits; every other layer sees a window.
#include <cmath>
#include <utility>

#include "archs/archs.h"
#include "archs/llama.h"
#include "layers/load.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

struct Gemma2Layer {
  RmsNorm attention_norm;
  GroupedAttention attention;
  Linear attention_out;
  RmsNorm after_attention_norm;
  RmsNorm mlp_norm;
  GatedMlp mlp;
  Linear down;
  RmsNorm after_mlp_norm;

  static std::int64_t floats_per_token(const ModelConfig& config) {
    return LlamaLayer::floats_per_token(config) + config.hidden_size;
  }

  // x: [m, hidden_size] f32, in place
  void forward(const StepContext& step, const kernels::KvLayer& cache,
               kernels::Matrix<float> x) const {
    kernels::Stream& stream = step.stream;
    const auto normed = step.workspace.take(x.rows, x.columns);  // [m, hidden]
    const auto result = step.workspace.take(x.rows, x.columns);  // [m, hidden]
    attention_out(step, attention(step, cache, attention_norm.of(x, normed)), result);
    after_attention_norm.add_to(stream, result, x);

    const kernels::GatedActivationArgs gate = mlp(step, mlp_norm.of(x, normed));
    down(step, gate.y, result, {.prologue = gate});
    after_mlp_norm.add_to(stream, result, x);
  }
};

Gemma2Layer load_layer(WeightLoader& in, const ModelConfig& config, int index) {
  const std::string name = "layers." + std::to_string(index) + ".";
  const int hidden = config.hidden_size;
  const auto norm = [&](const char* which) {
    return load_rms_norm(in, name + which, hidden, config.norm_epsilon, 1.0F);
  };
  Gemma2Layer layer;
  layer.attention_norm = norm("input_layernorm");
  layer.attention.qkv =
      load_linear(in, qkv_parts(config, name + "self_attn.", {"q_proj", "k_proj", "v_proj"}),
                  hidden, Split::kOutputs, config.qkv_bias);
  layer.attention_out = load_linear(in, {{name + "self_attn.o_proj", {hidden}}},
                                    query_width(config), Split::kInputs, config.attention_out_bias);
  layer.after_attention_norm = norm("post_attention_layernorm");
  layer.mlp_norm = norm("pre_feedforward_layernorm");
  layer.mlp.gate_up =
      load_linear(in, gate_up_parts(config, name + "mlp.", {"gate_proj", "up_proj"}), hidden,
                  Split::kOutputs, false);
  layer.down =
      load_linear(in, {{name + "mlp.down_proj", {hidden}}}, config.mlp_size, Split::kInputs, false);
  layer.after_mlp_norm = norm("post_feedforward_layernorm");
  layer.attention.shape = attention_shape(config, index);
  layer.mlp.activation = config.activation;
  return layer;
}

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 256000,
               .context_length = 8192,
               .hidden_size = 2304,
               .mlp_size = 9216,
               .num_layers = 26,
               .num_heads = 8,
               .num_kv_heads = 4,
               .head_dim = 256,
               .tied_embeddings = true,
               .eos_id = 1});
  config.activation = read_activation(json, "hidden_activation", "gelu_pytorch_tanh");
  config.qkv_bias = config.attention_out_bias = json.boolean("attention_bias", false);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.attention_scale =
      static_cast<float>(1.0 / std::sqrt(json.number("query_pre_attn_scalar", 256.0)));
  // null switches a cap off, as 0 does here.
  const auto cap = [&](const char* key, double fallback) {
    const double value = json.number(key, json.has(key) ? 0.0 : fallback);
    if (value < 0.0) json.refuse(std::string(key) + ": null or a number from 0 on is expected");
    return static_cast<float>(value);
  };
  config.attention_soft_cap = cap("attn_logit_softcapping", 50.0);
  config.logit_soft_cap = cap("final_logit_softcapping", 30.0);
  read_windows(json, config, read_window(json, 4096), [](int layer) { return layer % 2 == 0; });
  read_rotary(json, config);
}

std::unique_ptr<CausalLM> make(const ModelConfig& config, WeightLoader& in,
                               const ModelSetup& setup) {
  using Model = DecoderLM<Gemma2Layer, RmsNorm>;
  Model::Parts parts;
  in.find_prefix("embed_tokens.weight", "model.");
  parts.token_embedding =
      load_embedding(in, "embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (int index = 0; index < config.num_layers; ++index) {
    parts.layers.push_back(load_layer(in, config, index));
  }
  parts.final_norm = load_rms_norm(in, "norm", config.hidden_size, config.norm_epsilon, 1.0F);
  if (!config.tied_embeddings) {
    in.find_prefix("lm_head.weight", "");
    parts.head = load_embedding(in, "lm_head.weight", config.vocab_size, config.hidden_size);
  }
  return std::make_unique<Model>(config, std::move(parts), in, setup);
}

}  // namespace

const Architecture kGemma2 = {"gemma2", "Gemma2ForCausalLM", read_config, make};

}  // namespace lmtp::model

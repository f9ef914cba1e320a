// Nemotron 3 and 4, Minitron; Arcee; Jais 2: https://github.com/huggingface/transformers,
// models/nemotron/modeling_nemotron.py, models/jais2/modeling_jais2.py
// Against Llama: an MLP without a gate, of squared ReLU. nemotron: layer norms, their weights kept
// around 0; a half of each head turns. jais2: layer norms and biases.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_mlp(ConfigReader& json, ModelConfig& config, bool biases = false) {
  LayerSpec all = config.layers.front();
  all.gated = false;
  all.activation = read_activation(json, "hidden_act", "relu2");
  all.mlp_bias = json.boolean("mlp_bias", biases);
  all.qkv_bias = all.attention_out_bias = json.boolean("attention_bias", biases);
  for (LayerSpec& layer : config.layers) layer = all;
}

void read_nemotron(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 256000,
               .context_length = 4096,
               .hidden_size = 6144,
               .mlp_size = 24576,
               .num_heads = 48,
               .eos_id = 3});
  config.norm_epsilon = json.positive("norm_eps", 1e-5);
  read_mlp(json, config);
  read_rotary(json, config, {.fraction = "partial_rotary_factor", .default_fraction = 0.5});
}

void read_arcee(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.context_length = 4096,
               .hidden_size = 2560,
               .mlp_size = 18432,
               .norm_epsilon = 1e-5,
               .eos_id = 128001});
  read_mlp(json, config);
  read_rotary(json, config);
}

void read_jais2(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 150272,
               .context_length = 8192,
               .hidden_size = 3328,
               .mlp_size = 26624,
               .num_heads = 26,
               .activation = "relu2",
               .eos_id = 150024});
  config.norm_epsilon = json.positive("layer_norm_eps", 1e-5);
  read_mlp(json, config, true);
  read_rotary(json, config);
}

DecoderForm nemotron_form(const ModelConfig&) {
  return {.up = {"mlp.up_proj"}, .norm = NormKind::kLayer, .norm_shift = 1.0F};
}
DecoderForm jais2_form(const ModelConfig&) {
  return {.up = {"mlp.up_proj"}, .norm = NormKind::kLayer};
}
DecoderForm arcee_form(const ModelConfig&) { return {.up = {"mlp.up_proj"}}; }

}  // namespace

const Architecture kNemotron = {"nemotron", "NemotronForCausalLM", read_nemotron, nemotron_form};
const Architecture kJais2 = {"jais2", "Jais2ForCausalLM", read_jais2, jais2_form};
const Architecture kArcee = {"arcee", "ArceeForCausalLM", read_arcee, arcee_form};

}  // namespace lmtp::model

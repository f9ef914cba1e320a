// Gemma 2, VaultGemma: https://github.com/huggingface/transformers,
// models/gemma2/modeling_gemma2.py, models/vaultgemma/modeling_vaultgemma.py
// Against Llama: norms also behind attention and MLP, their weights kept around 0; embeddings
// scaled by sqrt(hidden_size); soft caps on scores and logits; every other layer sees a window.
// VaultGemma: norms before alone.
#include <cmath>
#include <string>

#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {

void read_gemma(ConfigReader& json, ModelConfig& config) {
  read_attention_bias(json, config);
  const auto activation = read_activation(json, "hidden_activation", "gelu_pytorch_tanh");
  const double width = static_cast<double>(json.positive("query_pre_attn_scalar", 256.0));
  const auto scale = static_cast<float>(1.0 / std::sqrt(width));
  for (LayerSpec& layer : config.layers) {
    layer.norms = NormPlaces::kAround;
    layer.activation = activation;
    layer.attention_scale = scale;
  }
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
}

DecoderForm gemma_form(const ModelConfig&) {
  return {.mlp_norm = "pre_feedforward_layernorm", .norm_shift = 1.0F};
}

namespace {

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
  // null switches a cap off, as 0 does here.
  const auto cap = [&](const char* key, double fallback) {
    const double value = json.number(key, json.has(key) ? 0.0 : fallback);
    const auto narrowed = static_cast<float>(value);
    if (value < 0.0 || std::isinf(narrowed)) {
      json.refuse(std::string(key) + ": null or a number from 0 on is expected");
    }
    return narrowed;
  };
  read_gemma(json, config);
  const float score_cap = cap("attn_logit_softcapping", 50.0);
  for (LayerSpec& layer : config.layers) layer.attention_soft_cap = score_cap;
  config.logit_soft_cap = cap("final_logit_softcapping", 30.0);
  read_windows(json, config, read_window(json, 4096), [](int layer) { return layer % 2 == 0; });
  read_rotary(json, config);
}

void read_vault(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  for (LayerSpec& layer : config.layers) layer.norms = NormPlaces::kBefore;
}

}  // namespace

const Architecture kGemma2 = {"gemma2", "Gemma2ForCausalLM", read_config, gemma_form};
const Architecture kVaultGemma = {"vaultgemma", "VaultGemmaForCausalLM", read_vault, gemma_form};

}  // namespace lmtp::model

// Qwen 2 and 3 MoE: https://github.com/huggingface/transformers,
// models/qwen2_moe/modeling_qwen2_moe.py, models/qwen3_moe/modeling_qwen3_moe.py,
// models/qwen3_vl_moe/modeling_qwen3_vl_moe.py
// Against Qwen 2 and 3: layers with experts, in Qwen 2 also with one that every token goes to.
#include <algorithm>
#include <cmath>
#include <string>

#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

// The numbers of layers that are dense all the same.
std::vector<double> read_dense_layers(ConfigReader& json, const ModelConfig& config) {
  std::vector<double> dense = json.numbers("mlp_only_layers");
  if (dense.size() > static_cast<std::size_t>(config.num_layers)) {
    json.refuse("mlp_only_layers: at most " + std::to_string(config.num_layers) +
                " layers are expected");
    return {};
  }
  const auto is_layer = [&](double layer) {
    return layer >= 0 && layer < config.num_layers && layer == std::floor(layer);
  };
  if (!std::ranges::all_of(dense, is_layer)) {
    json.refuse("mlp_only_layers: numbers of layers are expected, below " +
                std::to_string(config.num_layers));
  }
  return dense;
}

void read_moe(ConfigReader& json, ModelConfig& config, const ExpertKeys& keys, int size) {
  read_experts(json, config, keys);
  config.experts.size =
      static_cast<int>(json.integer({"moe_intermediate_size"}, size, 1, 4 * kHiddenSizeMax));
  const auto every = json.integer({"decoder_sparse_step"}, 1, 1, kNumLayersMax);
  const std::vector<double> dense = read_dense_layers(json, config);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool is_dense = std::ranges::find(dense, static_cast<double>(layer)) != dense.end();
    config.layers[static_cast<std::size_t>(layer)].sparse = !is_dense && (layer + 1) % every == 0;
  }
  if (json.boolean("use_sliding_window", false)) {
    json.refuse("use_sliding_window: releases of transformers differ in which layers of '" +
                config.model_type + "' have a window; only false is allowed");
  }
  read_windows(json, config, 0, [](int) { return false; });
}

void read_qwen3(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 151936,
               .context_length = 32768,
               .hidden_size = 2048,
               .mlp_size = 6144,
               .num_layers = 24,
               .num_kv_heads = 4});
  read_attention_bias(json, config);
  for (LayerSpec& layer : config.layers) layer.query_key_norm = QueryKeyNorm::kHead;
  read_moe(json, config, {.default_count = 128, .default_top_k = 8}, 768);
  config.experts.routing.renormalise = json.boolean("norm_topk_prob", false);
  read_rotary(json, config);
}

void read_qwen2(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 151936,
               .context_length = 32768,
               .hidden_size = 2048,
               .mlp_size = 5632,
               .num_layers = 24,
               .num_heads = 16,
               .num_kv_heads = 16});
  const bool has_bias = json.boolean("qkv_bias", true);
  for (LayerSpec& layer : config.layers) layer.qkv_bias = has_bias;
  read_moe(json, config, {.default_count = 60, .default_top_k = 4}, 1408);
  config.experts.routing.renormalise = json.boolean("norm_topk_prob", false);
  config.experts.shared_size = static_cast<int>(
      json.integer({"shared_expert_intermediate_size"}, 5632, 1, 4 * kHiddenSizeMax));
  config.experts.shared_is_gated = true;
  read_rotary(json, config);
}

// norm_topk_prob is not looked at.
void read_qwen3_vl(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 151936,
               .context_length = 128000,
               .hidden_size = 2048,
               .mlp_size = 5632,
               .num_layers = 24,
               .num_heads = 16,
               .num_kv_heads = 16,
               .tied_embeddings = true});
  read_attention_bias(json, config);
  for (LayerSpec& layer : config.layers) layer.query_key_norm = QueryKeyNorm::kHead;
  read_moe(json, config, {.default_count = 60, .default_top_k = 4}, 1408);
  config.experts.routing.renormalise = true;
  read_rotary(json, config, {.default_theta = 500000.0});
}

DecoderForm qwen3_vl_form(const ModelConfig&) {
  return {.experts = {ExpertForm{.is_stacked = true, .is_inputs_by_outputs = true},
                      ExpertForm{.is_stacked = true}}};
}

}  // namespace

const Architecture kQwen2Moe = {"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2, llama_form};
const Architecture kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3, llama_form};
const Architecture kQwen3VlMoe = {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration",
                                  read_qwen3_vl, qwen3_vl_form};

}  // namespace lmtp::model

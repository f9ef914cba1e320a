// GLM 4 of 2024 and of 2025: https://github.com/huggingface/transformers,
// models/glm/modeling_glm.py, models/glm4_moe/modeling_glm4_moe.py; dots.llm1, Solar Open
// Against Llama: neighbours in a half of each head turn together; gate and up are one matrix.
// glm4 has norms of results, too. glm4_moe, GLM 4.5 to 4.7: half of each head turns as Llama's, and
// layers after the first ones have experts; so have dots1 and solar_open, whose heads turn whole.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 151552,
               .context_length = 131072,
               .mlp_size = 13696,
               .num_layers = 40,
               .num_kv_heads = 2,
               .head_dim = 128,
               .norm_epsilon = 1.5625e-7});
  config.eos_ids = {151329, 151336, 151338};
  const bool has_bias = json.boolean("attention_bias", true);
  for (LayerSpec& layer : config.layers) layer.qkv_bias = has_bias;
  read_rotary(json, config, {.fraction = "partial_rotary_factor", .default_fraction = 0.5});
}

void read_glm4(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  for (LayerSpec& layer : config.layers) layer.norms = NormPlaces::kAround;
}

void read_moe_routing(ConfigReader& json, ExpertsConfig& experts, bool renormalise) {
  kernels::Routing& routing = experts.routing;
  routing.kind = kernels::Routing::Kind::kSigmoid;
  routing.renormalise = json.boolean("norm_topk_prob", renormalise);
  routing.sum_added = 1e-20F;
  routing.scale = json.positive("routed_scaling_factor", 1.0);
  routing.groups = static_cast<int>(json.integer({"n_group"}, 1, 1, experts.count));
  routing.top_groups = static_cast<int>(json.integer({"topk_group"}, 1, 1, routing.groups));
  const int size = experts.count / routing.groups;
  if (experts.count % routing.groups != 0 || (routing.groups > 1 && size < 2) ||
      size * routing.top_groups < routing.top_k) {
    json.refuse(
        "n_group, topk_group: groups of equal size are expected, of at least 2 experts, "
        "and in topk_group of them as many as num_experts_per_tok");
  }
}

// Experts of the layers from the first on; `size`: of an expert.
void read_moe_layers(ConfigReader& json, ModelConfig& config, int size, int default_first,
                     bool renormalise = true) {
  read_experts(json, config,
               {.count = "n_routed_experts", .default_count = 128, .default_top_k = 8});
  ExpertsConfig& experts = config.experts;
  experts.size =
      static_cast<int>(json.integer({"moe_intermediate_size"}, size, 1, 4 * kHiddenSizeMax));
  experts.shared_size =
      experts.size * static_cast<int>(json.integer({"n_shared_experts"}, 1, 1, 64));
  experts.choice_bias = true;
  read_moe_routing(json, experts, renormalise);
  const auto first = json.integer({"first_k_dense_replace"}, default_first, 0, kNumLayersMax);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    config.layers[static_cast<std::size_t>(layer)].sparse = layer >= first;
  }
}

void read_moe(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 151552,
               .context_length = 131072,
               .mlp_size = 10944,
               .num_layers = 46,
               .num_heads = 96,
               .num_kv_heads = 8,
               .norm_epsilon = 1e-5});
  const bool has_bias = json.boolean("attention_bias", false);
  const bool has_norms = json.boolean("use_qk_norm", false);
  for (LayerSpec& layer : config.layers) {
    layer.qkv_bias = has_bias;
    if (has_norms) layer.query_key_norm = QueryKeyNorm::kHead;
  }
  read_moe_layers(json, config, 1408, 1);
  read_rotary(json, config, {.fraction = "partial_rotary_factor", .default_fraction = 0.5});
}

void read_dots1(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 152064,
               .hidden_size = 4608,
               .mlp_size = 10944,
               .num_layers = 62,
               .num_kv_heads = 32});
  read_attention_bias(json, config);
  for (LayerSpec& layer : config.layers) layer.query_key_norm = QueryKeyNorm::kHead;
  const int window = read_window(json, 4096);
  const auto first = json.integer({"max_window_layers"}, 62, 0, kNumLayersMax);
  read_windows(json, config, window, [&](int layer) { return window > 0 && layer >= first; });
  read_moe_layers(json, config, 1408, 0, false);
  read_rotary(json, config);
}

void read_solar_open(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 196608,
               .context_length = 131072,
               .num_layers = 48,
               .num_heads = 64,
               .num_kv_heads = 8,
               .head_dim = 128,
               .norm_epsilon = 1e-5});
  const bool has_bias = json.boolean("attention_bias", false);
  for (LayerSpec& layer : config.layers) layer.qkv_bias = has_bias;
  read_moe_layers(json, config, 1280, 0);
  if (!config.layers.front().sparse || json.boolean("use_qk_norm", false)) {
    json.refuse("first_k_dense_replace, use_qk_norm: 0 and false are expected, as by transformers");
  }
  read_rotary(json, config, {.fraction = "partial_rotary_factor", .default_theta = 1000000.0});
}

DecoderForm moe_form(const ModelConfig&) {
  return {.experts = {ExpertForm{.shared = "mlp.shared_experts"}}};
}

DecoderForm form(const ModelConfig&) {
  return {.up = {"mlp.gate_up_proj"}, .turns_neighbours = true};
}

DecoderForm glm4_form(const ModelConfig& config) {
  DecoderForm glm4 = form(config);
  glm4.attention_result_norm = "post_self_attn_layernorm";
  glm4.mlp_result_norm = "post_mlp_layernorm";
  return glm4;
}

}  // namespace

const Architecture kGlm = {"glm", "GlmForCausalLM", read_config, form};
const Architecture kGlm4 = {"glm4", "Glm4ForCausalLM", read_glm4, glm4_form};
const Architecture kDots1 = {"dots1", "Dots1ForCausalLM", read_dots1, moe_form};
const Architecture kSolarOpen = {"solar_open", "SolarOpenForCausalLM", read_solar_open, moe_form};
const Architecture kGlm4Moe = {"glm4_moe", "Glm4MoeForCausalLM", read_moe, moe_form};

}  // namespace lmtp::model

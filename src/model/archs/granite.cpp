// Granite 3, HyperCLOVA X: https://github.com/huggingface/transformers,
// models/granite/modeling_granite.py, models/granitemoe/modeling_granitemoe.py,
// models/hyperclovax/modeling_hyperclovax.py
// Against Llama: multipliers of embeddings, scores, what is added, and logits. granitemoe: experts
// in all layers. hyperclovax: norms before and after, logits are multiplied.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.eos_id = 2});
  read_attention_bias(json, config);
  const auto multiplier = [&](const char* key) { return json.positive(key, 1.0); };
  const bool mlp_bias = json.boolean("mlp_bias", false);
  const float scale = multiplier("attention_multiplier");
  for (LayerSpec& layer : config.layers) {
    layer.mlp_bias = mlp_bias;
    layer.attention_scale = scale;
  }
  config.embedding_scale = multiplier("embedding_multiplier");
  config.residual_scale = multiplier("residual_multiplier");
  config.logit_scale = 1.0F / multiplier("logits_scaling");
  read_rotary(json, config);
}

void read_moe(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  read_experts(json, config, {.count = "num_local_experts"});
  config.experts.size = config.mlp_size;
  config.experts.routing.kind = kernels::Routing::Kind::kSoftmaxOfChosen;
  for (LayerSpec& layer : config.layers) layer.sparse = true;
  if (const std::string kind = json.text("position_embedding_type", "rope"); kind != "rope") {
    json.refuse("position_embedding_type: '" + kind + "' is not supported; supported is rope");
  }
}

void read_hyperclovax(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  config.logit_scale = json.positive("logits_scaling", 1.0);
  const bool has_after = json.boolean("use_post_norm", true);
  for (LayerSpec& layer : config.layers) {
    if (!json.is_set("attention_multiplier")) layer.attention_scale = 0.0F;
    if (has_after) layer.norms = NormPlaces::kAround;
  }
  if (has_after && config.residual_scale != 1.0F) {
    json.refuse("residual_multiplier: with use_post_norm 1 alone is allowed");
  }
}

DecoderForm hyperclovax_form(const ModelConfig&) {
  return {.attention_result_norm = "post_norm1", .mlp_result_norm = "post_norm2"};
}

DecoderForm moe_form(const ModelConfig&) {
  return {.experts = {ExpertForm{.router = "block_sparse_moe.router.layer",
                                 .all_up = "block_sparse_moe.input_linear.weight",
                                 .all_down = "block_sparse_moe.output_linear.weight",
                                 .is_stacked = true},
                      ExpertForm{.router = "block_sparse_moe.router",
                                 .all_up = "block_sparse_moe.experts.gate_up_proj",
                                 .all_down = "block_sparse_moe.experts.down_proj",
                                 .is_stacked = true}}};
}

}  // namespace

const Architecture kGranite = {"granite", "GraniteForCausalLM", read_config, llama_form};
const Architecture kHyperClovaX = {"hyperclovax", "HyperCLOVAXForCausalLM", read_hyperclovax,
                                   hyperclovax_form, "hyperclovax"};
const Architecture kGraniteMoe = {"granitemoe", "GraniteMoeForCausalLM", read_moe, moe_form};

}  // namespace lmtp::model

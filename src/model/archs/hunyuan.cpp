// Hunyuan: https://github.com/huggingface/transformers,
// models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py,
// models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py
// Against Llama: heads of queries and keys are normalised once they have turned; "dynamic" rotary
// settings may have an alpha, which stretches the base for all lengths. hunyuan_v1_moe: experts in
// all layers, and one as large that every token goes to.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.vocab_size = 290943, .norm_epsilon = 1e-5, .eos_id = 2});
  read_attention_bias(json, config);
  if (!json.boolean("use_qk_norm", true) || !json.boolean("use_rotary_pos_emb", true) ||
      json.boolean("use_cla", false)) {
    json.refuse("use_qk_norm, use_rotary_pos_emb, use_cla: allowed are true, true and false");
  }
  for (LayerSpec& layer : config.layers) layer.query_key_norm = QueryKeyNorm::kTurnedHead;
  read_rotary(json, config, {.has_alpha = true});
}

// A number, or a list of it for each layer.
int read_one(ConfigReader& json, const char* key, int fallback, int max) {
  const Json* const value = json.value(key);
  if (value == nullptr || !value->is_array()) {
    return static_cast<int>(json.integer({key}, fallback, 1, max));
  }
  const std::vector<double> all = json.numbers(key);
  const double first = all.empty() ? 0.0 : all.front();
  if (first < 1 || first > max || first != std::floor(first) ||
      std::ranges::count(all, first) != std::ssize(all)) {
    json.refuse(std::string(key) + ": a whole number from 1 to " + std::to_string(max) +
                " is expected, the same for each layer");
    return fallback;
  }
  return static_cast<int>(first);
}

void read_moe(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  ExpertsConfig& experts = config.experts;
  experts.count = read_one(json, "num_experts", 1, kernels::kExpertsMax);
  experts.routing.top_k =
      read_one(json, "moe_topk", 1, std::min(experts.count, kernels::kExpertsPerRowMax));
  if (json.integer({"num_experts_per_tok"}, experts.routing.top_k, 0, kernels::kExpertsMax) !=
          experts.routing.top_k ||
      json.integer({"num_local_experts"}, experts.count, 0, kernels::kExpertsMax) !=
          experts.count) {
    json.refuse(
        "num_experts_per_tok, num_local_experts: releases of transformers differ in whether they "
        "count; moe_topk and num_experts are expected to be the same");
  }
  experts.routing.renormalise = true;
  experts.size = experts.shared_size = config.mlp_size;
  for (LayerSpec& layer : config.layers) layer.sparse = true;
  if (read_one(json, "num_shared_expert", 1, kernels::kExpertsMax) != 1 ||
      read_one(json, "moe_intermediate_size", config.mlp_size, 4 * kHiddenSizeMax) !=
          config.mlp_size) {
    json.refuse("num_shared_expert, moe_intermediate_size: 1 and intermediate_size are expected");
  }
}

DecoderForm form(const ModelConfig&) {
  return {.query_norm = "self_attn.query_layernorm",
          .key_norm = "self_attn.key_layernorm",
          .experts = {ExpertForm{.router = "mlp.gate.wg", .shared = "mlp.shared_mlp"}}};
}

}  // namespace

const Architecture kHunyuanV1Dense = {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", read_config,
                                      form};

const Architecture kHunyuanV1Moe = {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", read_moe, form,
                                    "hunyuan"};

}  // namespace lmtp::model

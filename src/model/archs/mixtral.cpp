// Mixtral: https://github.com/huggingface/transformers, models/mixtral/modeling_mixtral.py
// Against Mistral: experts in all layers.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.context_length = 131072,
               .mlp_size = 14336,
               .num_kv_heads = 8,
               .norm_epsilon = 1e-5,
               .eos_id = 2});
  read_one_window(json, config, 0);
  read_experts(json, config, {.count = "num_local_experts"});
  config.experts.size = config.mlp_size;
  config.experts.routing.renormalise = true;
  for (LayerSpec& layer : config.layers) layer.sparse = true;
  read_rotary(json, config, {.default_theta = 1000000.0});
}

DecoderForm form(const ModelConfig&) {
  return {.experts = {ExpertForm{.router = "block_sparse_moe.gate",
                                 .experts = "block_sparse_moe.experts",
                                 .up = {"w1", "w3"},
                                 .down = "w2"},
                      ExpertForm()}};
}

}  // namespace

const Architecture kMixtral = {"mixtral", "MixtralForCausalLM", read_config, form};

}  // namespace lmtp::model

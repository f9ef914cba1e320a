// Mixtral: https://github.com/huggingface/transformers, models/mixtral/modeling_mixtral.py,
// models/minimax_m2/modeling_minimax_m2.py
// Against Mistral: experts in all layers. MiniMax M2: sigmoid scores with a bias that chooses
// alone; queries and keys are normalised over all heads, of which a part turns.
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

void read_minimax(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 200064,
               .context_length = 196608,
               .hidden_size = 3072,
               .mlp_size = 1536,
               .num_layers = 62,
               .num_heads = 48,
               .num_kv_heads = 8,
               .head_dim = 128,
               .eos_id = 200020});
  read_experts(json, config,
               {.count = "num_local_experts", .default_count = 256, .default_top_k = 8});
  config.experts.size = config.mlp_size;
  config.experts.choice_bias = true;
  config.experts.routing.kind = kernels::Routing::Kind::kSigmoid;
  config.experts.routing.renormalise = true;
  for (LayerSpec& layer : config.layers) {
    layer.query_key_norm = QueryKeyNorm::kWhole;
    layer.sparse = true;
  }
  const auto turned = json.integer({"rotary_dim"}, config.head_dim, 2, config.head_dim);
  read_rotary(json, config,
              {.fraction = "partial_rotary_factor",
               .default_fraction = static_cast<double>(turned) / config.head_dim,
               .default_theta = 5000000.0});
}

// As published, and as it is in memory.
DecoderForm form(const ModelConfig&) {
  ExpertForm in_memory;
  in_memory.choice_bias = "mlp.e_score_correction_bias";
  return {.experts = {ExpertForm{.router = "block_sparse_moe.gate",
                                 .choice_bias = "block_sparse_moe.e_score_correction_bias",
                                 .experts = "block_sparse_moe.experts",
                                 .up = {"w1", "w3"},
                                 .down = "w2"},
                      in_memory}};
}

}  // namespace

const Architecture kMixtral = {"mixtral", "MixtralForCausalLM", read_config, form};
const Architecture kMiniMaxM2 = {"minimax_m2", "MiniMaxM2ForCausalLM", read_minimax, form,
                                 "minimax_m2"};

}  // namespace lmtp::model

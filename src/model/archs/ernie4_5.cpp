// Ernie 4.5: https://github.com/huggingface/transformers,
// models/ernie4_5/modeling_ernie4_5.py, models/ernie4_5_moe/modeling_ernie4_5_moe.py
// Against Llama: neighbours in a head turn together. ernie4_5_moe: some layers have experts.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 103424,
               .context_length = 131072,
               .hidden_size = 1024,
               .mlp_size = 3072,
               .num_layers = 18,
               .num_heads = 16,
               .num_kv_heads = 2,
               .head_dim = 128,
               .norm_epsilon = 1e-5,
               .tied_embeddings = true,
               .eos_id = 2});
  const bool biases = json.boolean("use_bias", false);
  for (LayerSpec& layer : config.layers) {
    layer.qkv_bias = layer.attention_out_bias = layer.mlp_bias = biases;
  }
  read_rotary(json, config, {.default_theta = 500000.0});
}

void read_moe(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 103424,
               .context_length = 131072,
               .hidden_size = 2560,
               .mlp_size = 12288,
               .num_layers = 28,
               .num_heads = 20,
               .num_kv_heads = 4,
               .norm_epsilon = 1e-5,
               .tied_embeddings = true,
               .eos_id = 2});
  const bool biases = json.boolean("use_bias", false);
  read_experts(
      json, config,
      {.count = "moe_num_experts", .default_count = 64, .top_k = "moe_k", .default_top_k = 6});
  ExpertsConfig& experts = config.experts;
  experts.size =
      static_cast<int>(json.integer({"moe_intermediate_size"}, 1536, 1, 4 * kHiddenSizeMax));
  experts.shared_size =
      experts.size * static_cast<int>(json.integer({"moe_num_shared_experts"}, 2, 0, 64));
  experts.choice_bias = true;
  experts.biases = biases;
  experts.routing.renormalise = true;
  experts.routing.sum_min = json.positive("moe_norm_min", 1e-12);
  const auto last = json.integer({"moe_layer_end_index"}, -1, -1, kNumLayersMax);
  const auto first = json.integer({"moe_layer_start_index"}, 1, 0, kNumLayersMax);
  const auto every = json.integer({"moe_layer_interval"}, 1, 1, kNumLayersMax);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    LayerSpec& spec = config.layers[static_cast<std::size_t>(layer)];
    spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = biases;
    spec.sparse = (layer + 1) % every == 0 && layer >= first && (last == -1 || layer <= last);
  }
  read_rotary(json, config, {.default_theta = 500000.0});
}

DecoderForm form(const ModelConfig&) { return {.turns_neighbours = true}; }

DecoderForm moe_form(const ModelConfig& config) {
  const ExpertForm published{.choice_bias = "mlp.moe_statics.e_score_correction_bias",
                             .choice_bias_rows = 1,
                             .shared = "mlp.shared_experts"};
  ExpertForm in_memory = published;
  in_memory.choice_bias = "mlp.gate.moe_statics.e_score_correction_bias";
  return {.experts = {published, in_memory},
          .has_head_bias = config.layers.front().qkv_bias,
          .turns_neighbours = true};
}

}  // namespace

const Architecture kErnie45 = {"ernie4_5", "Ernie4_5ForCausalLM", read_config, form};
const Architecture kErnie45Moe = {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", read_moe, moe_form};

}  // namespace lmtp::model

// gpt-oss: https://github.com/huggingface/transformers, models/gpt_oss/modeling_gpt_oss.py
// Against Llama: experts in all layers, whose gate and up are in turn and limited, biases, a score
// of each head's own beside those of its tokens (a sink), a window in every other layer.
#include <cmath>

#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 201088,
               .context_length = 131072,
               .hidden_size = 2880,
               .mlp_size = 2880,
               .num_layers = 36,
               .num_heads = 64,
               .num_kv_heads = 8,
               .head_dim = 64,
               .norm_epsilon = 1e-5});
  const bool has_bias = json.boolean("attention_bias", true);
  read_windows(json, config, read_window(json, 128), [](int layer) { return layer % 2 == 0; });
  read_experts(json, config,
               {.count = "num_local_experts", .default_count = 128, .default_top_k = 4});
  ExpertsConfig& experts = config.experts;
  experts.size = config.mlp_size;
  experts.routing.kind = kernels::Routing::Kind::kSoftmaxOfChosen;
  experts.router_bias = experts.biases = experts.interleaved = true;
  experts.limit = json.positive("swiglu_limit", 7.0);
  experts.up_added = 1.0F;
  if (std::fabs(json.number("swiglu_alpha", 1.702) - 1.702) > 1e-6) {
    json.refuse("swiglu_alpha: 1.702 is expected");
  }
  for (LayerSpec& layer : config.layers) {
    // The experts', whatever hidden_act says: x / (1 + e^(-1.702 x)).
    layer.activation = kernels::Activation::kQuickGelu;
    layer.qkv_bias = layer.attention_out_bias = has_bias;
    layer.sparse = layer.sinks = true;
  }
  if (!json.is_set("rope_scaling") && !json.is_set("rope_parameters")) {
    json.refuse(
        "rope_scaling: is missing, with the settings that transformers writes; it is "
        "needed");
    return;
  }
  read_rotary(json, config, {.default_theta = 150000.0});
}

DecoderForm form(const ModelConfig&) {
  return {.experts = {ExpertForm{
              .router = "mlp.router", .is_stacked = true, .is_inputs_by_outputs = true}}};
}

}  // namespace

const Architecture kGptOss = {"gpt_oss", "GptOssForCausalLM", read_config, form};

}  // namespace lmtp::model

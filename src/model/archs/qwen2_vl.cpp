// The text models of Qwen 2 and 2.5 VL: https://github.com/huggingface/transformers,
// models/qwen2_vl/modeling_qwen2_vl.py
// Against Qwen 2: nothing for texts, whose three positions are one.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 152064,
               .context_length = 32768,
               .hidden_size = 8192,
               .mlp_size = 29568,
               .num_layers = 80,
               .num_heads = 64,
               .num_kv_heads = 8,
               .norm_epsilon = 1e-5});
  for (LayerSpec& layer : config.layers) layer.qkv_bias = true;
  read_qwen_windows(json, config, 80);
  read_rotary(json, config, {.default_theta = 1000000.0});
}

}  // namespace

const Architecture kQwen2Vl = {"qwen2_vl_text", "Qwen2VLForConditionalGeneration",
                               read_config,     llama_form,
                               nullptr,         "qwen2_vl"};
const Architecture kQwen25Vl = {"qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration",
                                read_config,       llama_form,
                                nullptr,           "qwen2_5_vl"};

}  // namespace lmtp::model

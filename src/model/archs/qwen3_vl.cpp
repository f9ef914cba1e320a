// The text model of Qwen 3 VL: https://github.com/huggingface/transformers,
// models/qwen3_vl/modeling_qwen3_vl.py
// Against Qwen 3: nothing for texts.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 151936,
               .context_length = 128000,
               .mlp_size = 22016,
               .num_kv_heads = 32,
               .head_dim = 128});
  read_attention_bias(json, config);
  for (LayerSpec& layer : config.layers) layer.query_key_norm = QueryKeyNorm::kHead;
  read_rotary(json, config, {.default_theta = 500000.0});
}

}  // namespace

const Architecture kQwen3Vl = {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", read_config,
                               llama_form};

}  // namespace lmtp::model

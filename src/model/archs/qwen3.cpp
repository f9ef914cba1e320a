// Qwen 3: https://github.com/huggingface/transformers, models/qwen3/modeling_qwen3.py
// Against Llama: every head of queries and keys is normalised before it turns; heads have a size of
// their own.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 151936,
               .context_length = 32768,
               .mlp_size = 22016,
               .num_kv_heads = 32,
               .head_dim = 128});
  read_attention_bias(json, config);
  for (LayerSpec& layer : config.layers) layer.query_key_norm = QueryKeyNorm::kHead;
  read_qwen_windows(json, config);
  read_rotary(json, config);
}

}  // namespace

const Architecture kQwen3 = {"qwen3", "Qwen3ForCausalLM", read_config, llama_form};

}  // namespace lmtp::model

// Qwen 3: https://github.com/huggingface/transformers, models/qwen3/modeling_qwen3.py
// Against Llama: every head of queries and keys is normalised before it turns; heads have a size of
// their own.
#include "archs/archs.h"
#include "archs/llama.h"
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
  config.qkv_bias = config.attention_out_bias = json.boolean("attention_bias", false);
  config.query_key_norm = true;
  read_qwen_windows(json, config);
  read_rotary(json, config);
}

std::unique_ptr<CausalLM> make(const ModelConfig& config, WeightLoader& weights,
                               const ModelSetup& setup) {
  return make_llama_family(config, weights, setup, {});
}

}  // namespace

const Architecture kQwen3 = {"qwen3", "Qwen3ForCausalLM", read_config, make};

}  // namespace lmtp::model

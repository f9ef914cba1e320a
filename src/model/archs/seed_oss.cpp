// Seed-OSS: https://github.com/huggingface/transformers,
// models/seed_oss/modeling_seed_oss.py
// Against Llama: biases on queries, keys and values.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 155136,
               .context_length = 524288,
               .mlp_size = 27648,
               .num_layers = 64,
               .num_heads = 80,
               .num_kv_heads = 8,
               .head_dim = 128,
               .eos_id = 2});
  LayerSpec all = config.layers.front();
  all.qkv_bias = json.boolean("attention_bias", true);
  all.attention_out_bias = json.boolean("attention_out_bias", false);
  all.mlp_bias = json.boolean("mlp_bias", false);
  for (LayerSpec& layer : config.layers) layer = all;
  read_rotary(json, config);
}

}  // namespace

const Architecture kSeedOss = {"seed_oss", "SeedOssForCausalLM", read_config, llama_form};

}  // namespace lmtp::model

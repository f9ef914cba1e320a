// InternLM 2 and 3: https://huggingface.co/internlm/internlm2-7b and internlm3-8b-instruct, whose
// code stands beside the weights; transformers 5 reads internlm3 as Llama.
// Against Llama: InternLM 2 has other names, and one matrix of queries, keys and values, by group
// of heads; InternLM 3's biases of queries, keys and values have a key of their own.
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_internlm2(ConfigReader& json, ModelConfig& config) {
  read_common(json, config, {.vocab_size = 103168, .eos_id = 2});
  const bool has_bias = json.boolean("bias", true);
  for (LayerSpec& layer : config.layers) layer.qkv_bias = layer.attention_out_bias = has_bias;
  config.qkv_parts = config.num_kv_heads;
  read_rotary(json, config);
}

void read_internlm3(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 128512,
               .context_length = 32768,
               .mlp_size = 10240,
               .num_layers = 48,
               .num_kv_heads = 2,
               .head_dim = 128,
               .norm_epsilon = 1e-5,
               .eos_id = 2});
  // The second names are transformers 5's.
  const bool qkv_bias = json.boolean("qkv_bias", json.boolean("attention_bias", false));
  const bool bias = json.boolean("bias", json.boolean("mlp_bias", false));
  for (LayerSpec& layer : config.layers) {
    layer.qkv_bias = qkv_bias;
    layer.attention_out_bias = layer.mlp_bias = bias;
  }
  read_rotary(json, config);
}

DecoderForm internlm2_form(const ModelConfig&) {
  return {.embedding = "tok_embeddings",
          .qkv = {"attention.wqkv"},
          .attention_out = "attention.wo",
          .up = {"feed_forward.w1", "feed_forward.w3"},
          .down = "feed_forward.w2",
          .attention_norm = "attention_norm",
          .mlp_norm = "ffn_norm",
          .heads = {"output"}};
}

}  // namespace

const Architecture kInternLM2 = {"internlm2", "InternLM2ForCausalLM", read_internlm2,
                                 internlm2_form, "internlm2"};
const Architecture kInternLM3 = {
    "internlm3", "InternLM3ForCausalLM", read_internlm3, llama_form, "internlm3",
    nullptr,     "LlamaForCausalLM"};

}  // namespace lmtp::model

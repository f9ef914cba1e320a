// GPT-J and CodeGen: https://github.com/huggingface/transformers,
// models/gptj/modeling_gptj.py, models/codegen/modeling_codegen.py
// Against GPT-2: attention and MLP read the same normalised input; neighbours in a part of each
// head turn together; the output head has a bias. CodeGen: one matrix, of four [q | v | k].
#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_gpt2_sizes(json, config,
                  {.vocab_size = 50400,
                   .context_length = 2048,
                   .hidden_size = 4096,
                   .num_layers = 28,
                   .num_heads = 16});
  config.tied_embeddings = json.boolean("tie_word_embeddings", false);
  for (LayerSpec& layer : config.layers) {
    layer.parallel = layer.one_norm = true;
    layer.qkv_bias = layer.attention_out_bias = false;
  }
  const auto dimensions = json.integer({"rotary_dim"}, 64, 2, kernels::kHeadDimMax);
  add_plain_rotary(json, config, static_cast<int>(dimensions), 10000.0);
}

void read_codegen(ConfigReader& json, ModelConfig& config) {
  read_config(json, config);
  config.qkv_parts = 4;
  if (config.num_heads % config.qkv_parts != 0) json.refuse("n_head must be a multiple of 4");
}

DecoderForm form(const ModelConfig&) {
  return {.prefix = "transformer.",
          .embedding = "wte",
          .layer = "h.",
          .qkv = {"attn.q_proj", "attn.k_proj", "attn.v_proj"},
          .attention_out = "attn.out_proj",
          .up = {"mlp.fc_in"},
          .down = "mlp.fc_out",
          .attention_norm = "ln_1",
          .final_norm = "ln_f",
          .norm = NormKind::kLayer,
          .has_head_bias = true,
          .turns_neighbours = true};
}

DecoderForm codegen_form(const ModelConfig& config) {
  DecoderForm codegen = form(config);
  codegen.qkv = {"attn.qkv_proj"};
  codegen.values_first = true;
  return codegen;
}

}  // namespace

const Architecture kCodeGen = {"codegen", "CodeGenForCausalLM", read_codegen, codegen_form};
const Architecture kGptJ = {"gptj", "GPTJForCausalLM", read_config, form};

}  // namespace lmtp::model

// Gemma 3: https://github.com/huggingface/transformers,
// models/gemma3/modeling_gemma3.py
// Against Gemma 2: heads of queries and keys are normalised; most layers see a window, which turn
// in another way than those that see all; no soft caps.
#include <string>

#include "archs/archs.h"
#include "archs/common.h"
#include "rotary_config.h"

namespace lmtp::model {
namespace {

void read_config(ConfigReader& json, ModelConfig& config) {
  read_common(json, config,
              {.vocab_size = 262208,
               .context_length = 131072,
               .hidden_size = 2304,
               .mlp_size = 9216,
               .num_layers = 26,
               .num_heads = 8,
               .num_kv_heads = 4,
               .head_dim = 256,
               .tied_embeddings = true,
               .eos_id = 1});
  read_gemma(json, config);
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (json.is_set(cap)) json.refuse_unless_forced(std::string(cap) + ": null is expected");
  }
  for (LayerSpec& layer : config.layers) layer.query_key_norm = QueryKeyNorm::kHead;
  read_windows_but_every(json, config,
                         json.integer({"sliding_window_pattern"}, 6, 1, kNumLayersMax));
  read_rotary_by_type(json, config, {.default_theta = 1000000.0},
                      {.theta = "rope_local_base_freq"});
}

}  // namespace

const Architecture kGemma3 = {"gemma3_text", "Gemma3ForCausalLM", read_config, gemma_form};

}  // namespace lmtp::model

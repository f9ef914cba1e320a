#include "gguf_names.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace lmtp::model {
namespace {

constexpr GgufName kLlamaWhole[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr GgufName kLlamaLayer[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj", GgufChange::kInterleaved},
    {"attn_k", "self_attn.k_proj", GgufChange::kInterleaved},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kQwenLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"}, {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kHunyuanLayer[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.key_layernorm"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kPhi3Layer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},      {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kGemmaWhole[] = {{"token_embd", "model.embed_tokens"},
                                    {"output_norm", "model.norm", GgufChange::kOneAdded},
                                    {"output", "lm_head"}};
constexpr GgufName kGemma2Layer[] = {
    {"attn_norm", "input_layernorm", GgufChange::kOneAdded},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm", GgufChange::kOneAdded},
    {"ffn_norm", "pre_feedforward_layernorm", GgufChange::kOneAdded},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm", GgufChange::kOneAdded},
    // Gemma 3's.
    {"attn_q_norm", "self_attn.q_norm", GgufChange::kOneAdded},
    {"attn_k_norm", "self_attn.k_norm", GgufChange::kOneAdded},
};
// Also Nemotron's, which has no gate.
constexpr GgufName kGemmaLayer[] = {
    {"attn_norm", "input_layernorm", GgufChange::kOneAdded},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm", GgufChange::kOneAdded},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kGlm4Layer[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_mlp_layernorm"},
};
// Norms of results alone.
constexpr GgufName kOlmoLayer[] = {
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
// Also GLM's mixtures, which have norms of queries and keys.
constexpr GgufName kSeedOssLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"}, {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kPhiWhole[] = {{"token_embd", "model.embed_tokens"},
                                  {"output_norm", "model.final_layernorm"},
                                  {"output", "lm_head"}};
constexpr GgufName kPhiLayer[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.dense"},
    {"ffn_up", "mlp.fc1"},
    {"ffn_down", "mlp.fc2"},
};
constexpr GgufName kStarcoder2Layer[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
};
constexpr GgufName kStarcoderLayer[] = {
    {"attn_norm", "ln_1"}, {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"},
    {"ffn_norm", "ln_2"},  {"ffn_up", "mlp.c_fc"},      {"ffn_down", "mlp.c_proj"},
};
constexpr GgufName kGpt2Whole[] = {{"token_embd", "transformer.wte"},
                                   {"position_embd", "transformer.wpe"},
                                   {"output_norm", "transformer.ln_f"},
                                   {"output", "lm_head"}};
constexpr GgufName kGpt2Layer[] = {
    {"attn_norm", "ln_1"},
    {"attn_qkv", "attn.c_attn", GgufChange::kTransposed},
    {"attn_output", "attn.c_proj", GgufChange::kTransposed},
    {"ffn_norm", "ln_2"},
    {"ffn_up", "mlp.c_fc", GgufChange::kTransposed},
    {"ffn_down", "mlp.c_proj", GgufChange::kTransposed},
};
constexpr GgufName kApertusLayer[] = {
    {"attn_norm", "attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "feedforward_layernorm"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kFalconWhole[] = {{"token_embd", "transformer.word_embeddings"},
                                     {"output_norm", "transformer.ln_f"},
                                     {"output", "lm_head"}};
constexpr GgufName kFalconLayer[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_qkv", "self_attention.query_key_value", GgufChange::kByPart},
    {"attn_output", "self_attention.dense"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};
constexpr GgufName kFalconTwoNormsLayer[] = {
    {"attn_norm", "ln_mlp"},
    {"attn_norm_2", "ln_attn"},
    {"attn_qkv", "self_attention.query_key_value", GgufChange::kByPart},
    {"attn_output", "self_attention.dense"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};
constexpr GgufName kGptNeoxWhole[] = {{"token_embd", "gpt_neox.embed_in"},
                                      {"output_norm", "gpt_neox.final_layer_norm"},
                                      {"output", "embed_out"}};
constexpr GgufName kGptNeoxLayer[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_qkv", "attention.query_key_value", GgufChange::kByPart},
    {"attn_output", "attention.dense"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};

// What sparse layers have besides; the families' own names first.
constexpr GgufName kExperts[] = {
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj", GgufChange::kExperts},
    {"ffn_up_exps", "mlp.experts.*.up_proj", GgufChange::kExperts},
    {"ffn_down_exps", "mlp.experts.*.down_proj", GgufChange::kExperts},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias", GgufChange::kBare},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
    // In layers that guess further tokens.
    {"nextn.eh_proj", "eh_proj"},
    {"nextn.embed_tokens", "embed_tokens"},
    {"nextn.enorm", "enorm"},
    {"nextn.hnorm", "hnorm"},
    {"nextn.shared_head_head", "shared_head.head"},
    {"nextn.shared_head_norm", "shared_head.norm"},
};
constexpr GgufName kQwenExperts[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr GgufName kMixtralExperts[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1", GgufChange::kExperts},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3", GgufChange::kExperts},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2", GgufChange::kExperts},
};
constexpr GgufName kGraniteExperts[] = {{"ffn_gate_inp", "block_sparse_moe.router.layer"}};
constexpr GgufName kErnieExperts[] = {
    {"exp_probs_b", "mlp.moe_statics.e_score_correction_bias", GgufChange::kBare}};
constexpr GgufName kMiniMaxExperts[] = {
    {"exp_probs_b", "mlp.e_score_correction_bias", GgufChange::kBare}};
constexpr GgufName kHunyuanExperts[] = {
    {"ffn_gate_inp", "mlp.gate.wg"},
    {"ffn_gate_shexp", "mlp.shared_mlp.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_mlp.up_proj"},
    {"ffn_down_shexp", "mlp.shared_mlp.down_proj"},
};
constexpr GgufName kGptOssExperts[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_sinks", "self_attn.sinks", GgufChange::kBare},
    {"ffn_gate_inp", "mlp.router"},
};

// Mistral's models and InternLM 3 are of the architecture llama there; of InternLM 2 queries, keys
// and values are three matrices, as Llama's.
constexpr GgufFamily kFamilies[] = {
    {"llama",
     "mixtral",
     "model.layers.",
     kLlamaWhole,
     kLlamaLayer,
     {.experts = true},
     "blk.0.ffn_gate_exps.weight",
     {},
     kMixtralExperts},
    {"llama", "llama", "model.layers.", kLlamaWhole, kLlamaLayer},
    {"qwen2", "qwen2", "model.layers.", kLlamaWhole, kQwenLayer},
    {"qwen3", "qwen3", "model.layers.", kLlamaWhole, kQwenLayer},
    {"phi3", "phi3", "model.layers.", kLlamaWhole, kPhi3Layer, {.windows = true}},
    {"gemma2",
     "gemma2",
     "model.layers.",
     kGemmaWhole,
     kGemma2Layer,
     {.windows = true, .default_window = 4096, .soft_caps = true}},
    {"gpt2", "gpt2", "transformer.h.", kGpt2Whole, kGpt2Layer, {.like_gpt2 = true}},
    {"gemma", "gemma", "model.layers.", kGemmaWhole, kGemmaLayer},
    {"gemma3",
     "gemma3_text",
     "model.layers.",
     kGemmaWhole,
     kGemma2Layer,
     {.windows = true, .own_sliding_base = true, .soft_caps = true}},
    {"qwen2vl", "qwen2_vl_text", "model.layers.", kLlamaWhole, kQwenLayer},
    {"qwen3vl", "qwen3_vl_text", "model.layers.", kLlamaWhole, kQwenLayer},
    {"granite", "granite", "model.layers.", kLlamaWhole, kLlamaLayer, {.multipliers = true}},
    {"smollm3", "smollm3", "model.layers.", kLlamaWhole, kLlamaLayer},
    {"arcee", "arcee", "model.layers.", kLlamaWhole, kLlamaLayer},
    {"seed_oss", "seed_oss", "model.layers.", kLlamaWhole, kSeedOssLayer},
    {"ernie4_5", "ernie4_5", "model.layers.", kLlamaWhole, kQwenLayer},
    {"command-r", "cohere", "model.layers.", kLlamaWhole, kQwenLayer, {.logit_scale = true}},
    {"cohere2",
     "cohere2",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.windows = true, .logit_scale = true}},
    {"stablelm", "stablelm", "model.layers.", kLlamaWhole, kQwenLayer, {.parallel = true}},
    {"glm4", "glm4", "model.layers.", kLlamaWhole, kGlm4Layer},
    {"olmo2", "olmo2", "model.layers.", kLlamaWhole, kOlmoLayer, {.windows = true}, {}, "olmo3"},
    {"exaone4", "exaone4", "model.layers.", kLlamaWhole, kOlmoLayer, {.windows = true}},
    {"nemotron", "nemotron", "model.layers.", kGemmaWhole, kGemmaLayer},
    {"starcoder2", "starcoder2", "model.layers.", kLlamaWhole, kStarcoder2Layer},
    {"starcoder",
     "gpt_bigcode",
     "transformer.h.",
     kGpt2Whole,
     kStarcoderLayer,
     {.like_gpt2 = true}},
    {"phi2", "phi", "model.layers.", kPhiWhole, kPhiLayer},
    {"apertus", "apertus", "model.layers.", kLlamaWhole, kApertusLayer, {.xielu = true}},
    {"falcon",
     "falcon",
     "transformer.h.",
     kFalconWhole,
     kFalconTwoNormsLayer,
     {},
     kSecondFalconNorm},
    {"falcon", "falcon", "transformer.h.", kFalconWhole, kFalconLayer},
    {"internlm2", "llama", "model.layers.", kLlamaWhole, kLlamaLayer},
    {"hunyuan-dense", "hunyuan_v1_dense", "model.layers.", kLlamaWhole, kHunyuanLayer},
    {"gptneox", "gpt_neox", "gpt_neox.layers.", kGptNeoxWhole, kGptNeoxLayer, {.parallel = true}},
    {"qwen2moe",
     "qwen2_moe",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.experts = true},
     {},
     {},
     kQwenExperts},
    {"qwen3moe",
     "qwen3_moe",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.experts = true, .sums_to_one = true},
     {},
     {},
     kQwenExperts},
    {"olmoe",
     "olmoe",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.experts = true},
     {},
     {},
     kQwenExperts},
    {"granitemoe",
     "granitemoe",
     "model.layers.",
     kLlamaWhole,
     kLlamaLayer,
     {.multipliers = true, .experts = true},
     {},
     {},
     kGraniteExperts},
    {"gpt-oss",
     "gpt_oss",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.windows = true, .experts = true},
     {},
     {},
     kGptOssExperts},
    {"glm4moe",
     "glm4_moe",
     "model.layers.",
     kLlamaWhole,
     kSeedOssLayer,
     {.experts = true, .sigmoid = true, .dense_first = true}},
    {"dots1",
     "dots1",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.experts = true, .sigmoid = true, .dense_first = true}},
    {"qwen3vlmoe",
     "qwen3_vl_moe_text",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.experts = true, .sums_to_one = true}},
    {"minimax-m2",
     "minimax_m2",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.experts = true, .sigmoid = true},
     {},
     {},
     kMiniMaxExperts},
    {"hunyuan-moe",
     "hunyuan_v1_moe",
     "model.layers.",
     kLlamaWhole,
     kHunyuanLayer,
     {.experts = true, .dense_first = true},
     {},
     {},
     kHunyuanExperts},
    {"ernie4_5-moe",
     "ernie4_5_moe",
     "model.layers.",
     kLlamaWhole,
     kQwenLayer,
     {.experts = true, .dense_first = true},
     {},
     {},
     kErnieExperts},
};

// "12" of "12.attn_q.weight"; empty if there is no number with a point behind.
std::string_view layer_of(std::string_view name) {
  const std::size_t end = std::min(name.find_first_not_of("0123456789"), name.size());
  return end > 0 && end < name.size() && name[end] == '.' ? name.substr(0, end)
                                                          : std::string_view();
}

const GgufName* find_name(const GgufFamily& family, std::string_view stem, bool is_in_layer) {
  using Names = std::span<const GgufName>;
  const bool has_experts = is_in_layer && family.keys.experts;
  for (const Names names :
       {is_in_layer ? family.of_layer : family.whole, has_experts ? family.of_experts : Names(),
        has_experts ? Names(kExperts) : Names()}) {
    const auto found = std::ranges::find(names, stem, &GgufName::gguf);
    if (found != names.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

Result<const GgufFamily*> find_gguf_family(const gguf::GgufFile& file) {
  std::optional<Error> error;
  const auto architecture = file.text("general.architecture", error);
  if (error) return *error;
  std::string known;
  for (const GgufFamily& family : kFamilies) {
    if (!family.tensor.empty() && file.find_tensor(family.tensor) == nullptr) continue;
    if (architecture == family.architecture) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  return Error{ErrorCode::kInvalid,
               file.origin() + ": general.architecture: " +
                   (architecture ? "'" + std::string(architecture->substr(0, 64)) + "'"
                                 : std::string("is missing; that")) +
                   " is not supported; supported are: " + known};
}

GgufTensorName translate_name(const GgufFamily& family, std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  const bool is_in_layer = name.starts_with(kLayer);
  const std::string_view layer = is_in_layer ? layer_of(name.substr(kLayer.size())) : "";
  std::string_view stem = name;
  if (is_in_layer) stem.remove_prefix(std::min(kLayer.size() + layer.size() + 1, stem.size()));
  const std::size_t point = stem.rfind('.');
  const std::string_view leaf =
      point == std::string_view::npos ? std::string_view() : stem.substr(point);
  stem.remove_suffix(leaf.size());
  if (leaf == ".weight" || leaf == ".bias") {
    const GgufName* const known = find_name(family, stem, is_in_layer);
    if (known != nullptr) {
      const std::string prefix =
          is_in_layer ? std::string(family.layers) + std::string(layer) + "." : std::string();
      if (known->change == GgufChange::kBare) return {prefix + std::string(known->ours)};
      const bool is_of_rows = known->change == GgufChange::kInterleaved ||
                              known->change == GgufChange::kByPart ||
                              known->change == GgufChange::kExperts;
      const bool is_changed = is_of_rows || leaf == ".weight";
      return {prefix + std::string(known->ours) + std::string(leaf),
              is_changed ? known->change : GgufChange::kNone};
    }
  }
  return {std::string(name)};
}

bool is_rotary_table(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
         name == "rope_factors_short.weight";
}

std::int64_t gguf_size(const gguf::GgufFile& file, const GgufFamily& family, std::string_view key) {
  const std::string full = std::string(family.architecture) + "." + std::string(key);
  std::optional<Error> mistyped;  // of the other form
  if (const auto value = file.integer(full, mistyped)) return *value;
  const auto values = file.numbers(full, mistyped);
  if (!values || values->empty()) return -1;
  const double first = values->front();
  const bool is_same =
      std::all_of(values->begin(), values->end(), [first](double value) { return value == first; });
  constexpr double kMax = 1 << 30;
  return is_same && first >= 0 && first <= kMax ? static_cast<std::int64_t>(first) : -1;
}

std::int64_t gguf_head_dim(const gguf::GgufFile& file, const GgufFamily& family) {
  const std::int64_t own = gguf_size(file, family, "attention.key_length");
  if (own > 0) return own;
  const std::int64_t width = gguf_size(file, family, "embedding_length");
  const std::int64_t num_heads = gguf_size(file, family, "attention.head_count");
  return width > 0 && num_heads > 0 ? width / num_heads : 0;
}

}  // namespace lmtp::model

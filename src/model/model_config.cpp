#include "lmtp/model/model_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "archs/archs.h"
#include "archs/common.h"
#include "config_guard.h"
#include "config_reader.h"
#include "gguf_config.h"
#include "kernels/attention.h"
#include "lmtp/base/check.h"
#include "lmtp/model/shard.h"
#include "quantization_config.h"

namespace lmtp::model {
namespace {

struct Shape {
  const char* name;
  const char* config_json;
};

// Queries, keys and values of all layers: a config alone has memory taken for lists of so many.
constexpr std::int64_t kAttentionRowsMax = std::int64_t{1} << 26;

// Shapes of well-known models, for random weights.
constexpr Shape kShapes[] = {
    {"gpt2", R"({
  "architectures": ["GPT2LMHeadModel"],
  "model_type": "gpt2",
  "activation_function": "gelu_new",
  "bos_token_id": 50256,
  "eos_token_id": 50256,
  "layer_norm_epsilon": 1e-05,
  "n_embd": 768,
  "n_head": 12,
  "n_layer": 12,
  "n_positions": 1024,
  "torch_dtype": "float32",
  "vocab_size": 50257
}
)"},
    {"gpt2-medium", R"({
  "architectures": ["GPT2LMHeadModel"],
  "model_type": "gpt2",
  "activation_function": "gelu_new",
  "bos_token_id": 50256,
  "eos_token_id": 50256,
  "layer_norm_epsilon": 1e-05,
  "n_embd": 1024,
  "n_head": 16,
  "n_layer": 24,
  "n_positions": 1024,
  "torch_dtype": "float32",
  "vocab_size": 50257
}
)"},
    // Llama's, except for EOS, which is the last id of make-checkpoint's tokenizer.
    {"tinyllama-1.1b", R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "bos_token_id": 31999,
  "eos_token_id": 31999,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "intermediate_size": 5632,
  "max_position_embeddings": 2048,
  "num_attention_heads": 32,
  "num_hidden_layers": 22,
  "num_key_value_heads": 4,
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": 32000
}
)"},
    {"llama-3-8b", R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "bos_token_id": 128255,
  "eos_token_id": 128255,
  "hidden_act": "silu",
  "hidden_size": 4096,
  "intermediate_size": 14336,
  "max_position_embeddings": 8192,
  "num_attention_heads": 32,
  "num_hidden_layers": 32,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05,
  "rope_theta": 500000.0,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": 128256
}
)"},
    {"qwen3-30b-a3b", R"({
  "architectures": ["Qwen3MoeForCausalLM"],
  "model_type": "qwen3_moe",
  "bos_token_id": 151935,
  "eos_token_id": 151935,
  "head_dim": 128,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "intermediate_size": 6144,
  "max_position_embeddings": 40960,
  "moe_intermediate_size": 768,
  "norm_topk_prob": true,
  "num_attention_heads": 32,
  "num_experts": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 48,
  "num_key_value_heads": 4,
  "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": 151936
}
)"},
    {"gpt-oss-20b", R"({
  "architectures": ["GptOssForCausalLM"],
  "model_type": "gpt_oss",
  "attention_bias": true,
  "eos_token_id": 200002,
  "head_dim": 64,
  "hidden_act": "silu",
  "hidden_size": 2880,
  "intermediate_size": 2880,
  "max_position_embeddings": 131072,
  "num_attention_heads": 64,
  "num_experts_per_tok": 4,
  "num_hidden_layers": 24,
  "num_key_value_heads": 8,
  "num_local_experts": 32,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": false
  },
  "rope_theta": 150000,
  "sliding_window": 128,
  "swiglu_limit": 7.0,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": 201088
}
)"},
};

// The shape with so many layers that `shape` names: NAME-8l; empty: it is none.
std::string cut_shape(const Shape& whole, const std::string& shape) {
  constexpr std::string_view kLayers = "\"num_hidden_layers\": ";
  const std::string stem = std::string(whole.name) + "-";
  std::string json = whole.config_json;
  const std::size_t at = json.find(kLayers);
  if (at == std::string::npos || !shape.starts_with(stem) || !shape.ends_with('l')) return "";
  const std::string number = shape.substr(stem.size(), shape.size() - stem.size() - 1);
  const bool is_number = !number.empty() && number.size() <= 3 && number.front() != '0' &&
                         number.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) return "";
  const std::size_t first = at + kLayers.size();
  return json.replace(first, json.find(',', first) - first, number);
}

kernels::ElementType read_weight_type(ConfigReader& json) {
  // Newer versions of transformers call it dtype.
  const std::string name = json.text("dtype", json.text("torch_dtype", "float32"));
  if (name == "bfloat16") return kernels::ElementType::kBF16;
  return name == "float16" ? kernels::ElementType::kF16 : kernels::ElementType::kF32;
}

// The ids of config.json if it has the key (null: none), else the architecture's defaults.
void set_eos_ids(ConfigReader& json, ModelConfig& config) {
  if (json.has("eos_token_id")) {
    config.eos_ids = json.token_ids("eos_token_id").value_or(std::vector<TokenId>{});
  }
}

// The text model's settings if this is a larger model around a supported one; empty if not.
std::optional<ConfigReader> find_text_config(ConfigReader& json) {
  auto text = json.object("text_config");
  if (!text.has_value() || !find_architecture(text->text("model_type", "")).ok()) {
    return std::nullopt;
  }
  return text;
}

void check_experts(ConfigReader& json, ModelConfig& config) {
  const auto is_sparse = [](const LayerSpec& layer) { return layer.sparse; };
  const std::int64_t sparse = std::ranges::count_if(config.layers, is_sparse);
  if (sparse == 0) config.experts = {};
  if (sparse == config.num_layers) config.mlp_size = 0;
  if (sparse * config.experts.count > kExpertsOfLayersMax) {
    json.refuse("the layers have together " + std::to_string(sparse * config.experts.count) +
                " experts; allowed are " + std::to_string(kExpertsOfLayersMax));
  }
  if (config.experts.floats_per_token(config.hidden_size) > kExpertFloatsMax) {
    json.refuse("the experts of a token have together more than " +
                std::to_string(kExpertFloatsMax) + " numbers between them; allowed are so many");
  }
}

Result<ModelConfig> parse_config(ConfigReader& json) {
  ModelConfig config;
  config.model_type = json.text("model_type", "");
  auto architecture = find_architecture(config.model_type);
  auto text = architecture.ok() ? std::nullopt : find_text_config(json);
  const Architecture* const flat = text.has_value() ? nullptr : find_in_flat(config.model_type);
  if (flat != nullptr) text = json;
  if (text.has_value()) {
    config.outer_model_type = config.model_type;
    config.model_type = flat != nullptr ? flat->model_type : text->text("model_type", "");
    architecture = find_architecture(config.model_type);
    check_outer(json, *text, **architecture);
  } else if (architecture.ok()) {
    const auto classes = json.texts("architectures");
    config.architecture = classes.empty() ? "" : classes.front();
    check_supported(json, **architecture);
    config.has_head = !is_body(config.architecture, **architecture);
  } else {
    json.refuse(architecture.error().message);
    return *json.error();
  }
  config.weight_type = read_weight_type(json);
  config.quantization = read_quantization(json, config.model_type);
  if (text.has_value() && config.quantization.method == QuantMethod::kNone) {
    config.quantization = read_quantization(*text, config.model_type);
  }
  if (config.architecture.empty()) config.architecture = (*architecture)->architecture;
  ConfigReader& own = text.has_value() ? *text : json;
  (*architecture)->read_config(own, config);
  if (!config.has_head) config.tied_embeddings = true;
  set_eos_ids(json.has("eos_token_id") ? json : own, config);
  if (config.head_dim > kernels::kHeadDimMax) {
    json.refuse("the heads have " + std::to_string(config.head_dim) + " dimensions; allowed are " +
                std::to_string(kernels::kHeadDimMax) + " at most");
  }
  const std::int64_t num_heads = config.num_heads + 2 * std::int64_t{config.num_kv_heads};
  if (num_heads * config.head_dim * config.num_layers > kAttentionRowsMax) {
    json.refuse("the queries, keys and values of all layers have together more than " +
                std::to_string(kAttentionRowsMax) + " dimensions; allowed are so many");
  }
  check_experts(json, config);
  if (json.error().has_value()) return *json.error();
  config.notes = json.notes();
  return config;
}

// Keeps ids within the vocabulary, ascending, without duplicates.
void tidy_eos_ids(ModelConfig& config) {
  std::vector<TokenId>& ids = config.eos_ids;
  std::erase_if(ids, [&](TokenId id) { return id >= config.vocab_size; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

// Model Optimizer's exports of before 2025 say nothing of it in config.json.
Result<void> read_beside(const std::string& folder, ModelConfig& config) {
  const std::string path = folder + "/hf_quant_config.json";
  std::error_code code;
  if (config.quantization.method != QuantMethod::kNone || !std::filesystem::exists(path, code)) {
    return {};
  }
  auto json = ConfigReader::read(path);
  if (!json.ok()) return json.error();
  config.quantization = read_quantization(*json, config.model_type);
  if (json->error().has_value()) return *json->error();
  const std::vector<std::string> notes = json->notes();
  config.notes.insert(config.notes.end(), notes.begin(), notes.end());
  return {};
}

}  // namespace

Result<ModelConfig> read_model_config(const std::string& folder, const ConfigOptions& options) {
  if (is_gguf(folder)) {
    auto metadata = read_gguf_config(folder, options);
    if (!metadata.ok()) return metadata.error();
    auto config = parse_config(metadata->json);
    if (!config.ok()) return config;
    config->quantization = std::move(metadata->quantization);
    config->tied_embeddings = options.tie_embeddings.value_or(config->tied_embeddings);
    tidy_eos_ids(*config);
    return config;
  }
  auto json = ConfigReader::read(folder + "/config.json", options);
  if (!json.ok()) return json.error();
  auto config = parse_config(*json);
  if (!config.ok()) return config;
  // A larger model's is true where its config.json does not say.
  const bool outer_ties =
      !config->outer_model_type.empty() && json->boolean("tie_word_embeddings", true);
  if (json->error().has_value()) return *json->error();
  config->settles_head = config->has_head && !options.tie_embeddings.has_value() &&
                         (config->tied_embeddings || outer_ties);
  if (config->has_head) {
    config->tied_embeddings = options.tie_embeddings.value_or(config->tied_embeddings);
  }
  if (const auto read = read_beside(folder, *config); !read.ok()) return read.error();
  const std::string generation_path = folder + "/generation_config.json";
  std::error_code code;
  if (std::filesystem::exists(generation_path, code)) {
    auto generation = ConfigReader::read(generation_path);
    if (!generation.ok()) return generation.error();
    config->eos_ids = generation->token_ids("eos_token_id").value_or(config->eos_ids);
    if (generation->error().has_value()) return *generation->error();
  }
  tidy_eos_ids(*config);
  return config;
}

Result<std::string> shape_config_json(const std::string& shape) {
  std::string known;
  for (const Shape& candidate : kShapes) {
    if (shape == candidate.name) return std::string(candidate.config_json);
    if (std::string cut = cut_shape(candidate, shape); !cut.empty()) return cut;
    known += known.empty() ? "" : ", ";
    known += candidate.name;
  }
  return Error{ErrorCode::kInvalid, "random:" + shape + ": no such shape; there are: " + known};
}

Result<ModelConfig> shape_config(const std::string& shape) {
  const auto text = shape_config_json(shape);
  if (!text.ok()) return text.error();
  auto json = ConfigReader::parse(*text, "random:" + shape);
  if (!json.ok()) return json.error();
  auto config = parse_config(*json);
  if (config.ok()) tidy_eos_ids(*config);
  return config;
}

namespace {

// Norms over all heads gather them by vocab_share(), which has whole panels where there are many,
// and need each head on one rank.
bool can_gather_heads(const ModelConfig& config, int num_ranks) {
  const auto is_even = [&](std::int64_t width) {
    const VocabShare share = vocab_share(width, {1, num_ranks});
    return share.first == width / num_ranks && share.count == share.first;
  };
  return num_ranks <= config.num_kv_heads &&
         is_even(std::int64_t{config.num_heads} * config.head_dim) &&
         is_even(std::int64_t{config.num_kv_heads} * config.head_dim);
}

bool can_divide(const ModelConfig& config, int num_ranks) {
  const int kv_heads = config.num_kv_heads;
  if (num_ranks > 1 && normalises_all_heads(config) && !can_gather_heads(config, num_ranks)) {
    return false;
  }
  return config.num_heads % num_ranks == 0 && config.qkv_parts % num_ranks == 0 &&
         config.mlp_size % num_ranks == 0 && config.experts.size % num_ranks == 0 &&
         config.experts.shared_size % num_ranks == 0 &&
         (kv_heads % num_ranks == 0 || num_ranks % kv_heads == 0);
}

}  // namespace

std::int64_t ExpertsConfig::floats_per_token(std::int64_t hidden_size) const {
  if (count == 0) return 0;
  // Scores and offsets; the slots with their numbers; what the shared expert gives.
  const std::int64_t of_slot = hidden_size + 2 * std::int64_t{size} + 4;
  return 2 * std::int64_t{count} + 2 + routing.top_k * of_slot +
         (shared_size > 0 ? hidden_size + 2 * std::int64_t{shared_size} + 1 : 0);
}

Result<ModelConfig> rank_config(ModelConfig config, int num_ranks) {
  LMTP_CHECK(num_ranks >= 1 && num_ranks <= kRanksMax, num_ranks);
  if (!can_divide(config, num_ranks)) {
    std::string possible;
    for (int count = 1; count <= std::min(config.num_heads, kRanksMax); ++count) {
      if (can_divide(config, count)) possible += (count == 1 ? "" : ", ") + std::to_string(count);
    }
    std::string mlps = config.mlp_size > 0 ? "an MLP of " + std::to_string(config.mlp_size) : "";
    for (const int size : {config.experts.size, config.experts.shared_size}) {
      if (size == 0) continue;
      mlps += (mlps.empty() ? "" : ", ") + std::string("experts of ") + std::to_string(size);
    }
    return Error{ErrorCode::kInvalid, "this model cannot be divided among " +
                                          std::to_string(num_ranks) +
                                          " ranks: " + std::to_string(config.num_heads) +
                                          " heads, " + std::to_string(config.num_kv_heads) +
                                          " KV heads and " + mlps + " allow " + possible};
  }
  if (config.vocab_size < num_ranks) {
    return Error{ErrorCode::kInvalid, "a vocabulary of " + std::to_string(config.vocab_size) +
                                          " cannot be divided among " + std::to_string(num_ranks) +
                                          " ranks"};
  }
  config.num_heads /= num_ranks;
  if (num_ranks > config.num_kv_heads) config.kv_copies = num_ranks / config.num_kv_heads;
  config.num_kv_heads = std::max(1, config.num_kv_heads / num_ranks);
  config.mlp_size /= num_ranks;
  config.experts.size /= num_ranks;
  config.experts.shared_size /= num_ranks;
  config.qkv_parts /= num_ranks;
  return config;
}

Result<ModelConfig> load_model_config(const ModelSource& source, const ConfigOptions& options) {
  return source.kind == SourceKind::kRandom ? shape_config(source.shape)
                                            : read_model_config(source.folder, options);
}

}  // namespace lmtp::model

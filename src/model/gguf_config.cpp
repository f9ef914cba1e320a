#include "gguf_config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf_codes.h"
#include "gguf_names.h"
#include "lmtp/gguf/gguf_file.h"
#include "weights_file.h"

namespace lmtp::model {
namespace {

// Of the family's keys, those that need no look: they repeat what the tensors say, or are notes.
constexpr std::string_view kIgnoredKeys[] = {"vocab_size", "tensor_data_layout",
                                             "rope.scaling.finetuned",
                                             // images'
                                             "rope.dimension_sections", "n_deepstack_layers"};
// Keys that change what a model computes where they are not these values.
struct OnlyValue {
  std::string_view key;
  double value;
};
constexpr OnlyValue kOnlyValues[] = {
    {"expert_count", 0},        {"expert_used_count", 0},
    {"attention.causal", 1},    {"rope.scaling.yarn_ext_factor", 1},
    {"attention.clamp_kqv", 0}, {"attention.max_alibi_bias", 0},
    {"logit_scale", 0}};
// Texts of tokens that end a turn; files name one of a model's end tokens alone.
constexpr std::string_view kEndTokens[] = {"<|eot_id|>",     "<|im_end|>",    "<|end|>",
                                           "<|eom_id|>",     "<end_of_turn>", "<|endoftext|>",
                                           "<|end_of_text|>"};
constexpr std::string_view kEndKeys[] = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
constexpr double kControlToken = 3;
constexpr std::int64_t kRotaryTableMax = 1 << 16;
// Gemma 2 and 3 27B divide scores by another width than a head's, as llama.cpp knows it by their
// layers.
constexpr std::int64_t kGemma27Layers[] = {46, 62};

class Converter {
 public:
  Converter(const gguf::GgufFile& file, const GgufFamily& family) : file_(file), family_(family) {}

  Result<Json> run() {
    json_["model_type"] = family_.model_type;
    if (family_.keys.like_gpt2) {
      read_gpt2();
    } else {
      read_sizes();
      read_rotary();
      read_rest();
    }
    json_["tie_word_embeddings"] = file_.find_tensor("output.weight") == nullptr;
    if (const gguf::Tensor* embedding = file_.find_tensor("token_embd.weight")) {
      json_["vocab_size"] = embedding->shape.front();
    } else {
      refuse("tensor 'token_embd.weight' is missing");
    }
    read_end_tokens();
    if (error_) return *error_;
    return std::move(json_);
  }

  // The family's keys that nothing above has read.
  std::vector<std::string> unknown_keys() const {
    std::vector<std::string> unknown;
    const std::string prefix = full("");
    for (const std::string_view key : file_.keys()) {
      if (!key.starts_with(prefix)) continue;
      const std::string_view own = key.substr(prefix.size());
      const bool is_known = used_.contains(own) ||
                            std::find(std::begin(kIgnoredKeys), std::end(kIgnoredKeys), own) !=
                                std::end(kIgnoredKeys) ||
                            has_only_value(own);
      if (!is_known) unknown.emplace_back(key);
    }
    return unknown;
  }

 private:
  std::string full(std::string_view key) const {
    return std::string(family_.architecture) + "." + std::string(key);
  }

  void refuse(const std::string& what) {
    if (!error_) error_ = Error{ErrorCode::kInvalid, file_.origin() + ": " + what};
  }

  bool has_only_value(std::string_view key) const {
    const auto only =
        std::find_if(std::begin(kOnlyValues), std::end(kOnlyValues),
                     [&](const OnlyValue& candidate) { return candidate.key == key; });
    if (only == std::end(kOnlyValues)) return false;
    std::optional<Error> mistyped;  // and no such value
    const auto flag = file_.boolean(full(key), mistyped);
    const auto value = flag ? std::optional(*flag ? 1.0 : 0.0) : file_.number(full(key), mistyped);
    return value == only->value;
  }

  std::optional<std::int64_t> find_size(std::string_view key) {
    used_.insert(key);
    if (!file_.has(full(key))) return std::nullopt;
    const std::int64_t value = gguf_size(file_, family_, key);
    if (value >= 0) return value;
    std::optional<Error> no_array;
    if (!file_.numbers(full(key), no_array)) (void)file_.integer(full(key), error_);
    refuse("'" + full(key) + "' is negative, or not the same in all layers");
    return std::nullopt;
  }

  std::int64_t size(std::string_view key, const char* ours) {
    const auto value = find_size(key);
    if (!value) refuse("'" + full(key) + "' is missing");
    json_[ours] = value.value_or(1);
    return value.value_or(1);
  }

  std::optional<double> find_number(std::string_view key) {
    used_.insert(key);
    const auto value = file_.number(full(key), error_);
    if (!value || std::isfinite(*value)) return value;
    refuse("'" + full(key) + "' is no finite number");
    return std::nullopt;
  }

  void number(std::string_view key, const char* ours) {
    if (const auto value = find_number(key)) json_[ours] = *value;
  }

  void read_gpt2() {
    size("context_length", "n_positions");
    size("embedding_length", "n_embd");
    size("block_count", "n_layer");
    size("attention.head_count", "n_head");
    size("feed_forward_length", "n_inner");
    number("attention.layer_norm_epsilon", "layer_norm_epsilon");
    if (const auto heads = find_size("attention.head_count_kv")) json_["multi_query"] = *heads == 1;
  }

  void read_sizes() {
    size("context_length", "max_position_embeddings");
    size("embedding_length", "hidden_size");
    // Those after a model's layers guess further tokens, and are not run.
    json_["num_hidden_layers"] =
        size("block_count", "num_hidden_layers") - find_size("nextn_predict_layers").value_or(0);
    json_["ffn_hidden_size"] = size("feed_forward_length", "intermediate_size");
    const std::int64_t num_heads = size("attention.head_count", "num_attention_heads");
    const std::int64_t num_kv_heads = find_size("attention.head_count_kv").value_or(num_heads);
    for (const char* key : {"num_key_value_heads", "num_kv_heads"}) json_[key] = num_kv_heads;
    const bool has_two = file_.find_tensor(kSecondFalconNorm) != nullptr;
    json_["new_decoder_architecture"] = has_two || num_kv_heads > 1;
    json_["num_ln_in_parallel_attn"] = has_two ? 2 : 1;
    const auto key_length = find_size("attention.key_length");
    const auto value_length = find_size("attention.value_length");
    json_["head_dim"] = gguf_head_dim(file_, family_);
    if (value_length && value_length != key_length.value_or(gguf_head_dim(file_, family_))) {
      refuse("'" + full("attention.value_length") +
             "': values of another width than keys are not "
             "supported");
    }
    number("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    if (const auto epsilon = find_number("attention.layer_norm_epsilon")) {
      for (const char* key : {"layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"}) {
        json_[key] = *epsilon;
      }
    }
  }

  void read_rotary() {
    for (const char* key : {"rope_theta", "rotary_emb_base"}) number("rope.freq_base", key);
    if (const auto sliding = find_number("rope.freq_base_swa")) {  // of layers with a window
      if (family_.keys.own_sliding_base) {
        json_["rope_local_base_freq"] = *sliding;
      } else if (json_.value("rope_theta", 0.0) != *sliding) {
        refuse("'" + full("rope.freq_base_swa") + "' differs from '" + full("rope.freq_base") +
               "', which is not supported here");
      }
    }
    const std::int64_t head_dim = gguf_head_dim(file_, family_);
    json_["rotary_pct"] = 1.0;
    if (const auto turned = find_size("rope.dimension_count"); turned && head_dim > 0) {
      for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
        json_[key] = static_cast<double>(*turned) / static_cast<double>(head_dim);
      }
    }
    used_.insert("rope.scaling.type");
    const std::string type(file_.text(full("rope.scaling.type"), error_).value_or("none"));
    const auto original = find_size("rope.scaling.original_context_length");
    if (original) json_["original_max_position_embeddings"] = *original;
    const auto factor = find_number("rope.scaling.factor");
    const auto old_factor = find_number("rope.scale_linear").value_or(0.0);
    Json scaling = Json::object();
    if (type == "linear" || (type == "none" && old_factor != 0.0)) {
      scaling = {{"rope_type", "linear"}, {"factor", factor.value_or(old_factor)}};
    } else if (type == "yarn") {
      scaling = yarn(factor.value_or(1.0), original);
    } else if (type != "none" && type != "longrope") {
      refuse("'" + full("rope.scaling.type") + "': '" + type +
             "' is not supported; supported are none, linear, yarn, longrope");
    }
    add_tables(type, original, scaling);
    if (scaling.empty()) scaling = {{"rope_type", "default"}};
    json_["rope_scaling"] = std::move(scaling);
  }

  Json yarn(double factor, std::optional<std::int64_t> original) {
    Json scaling = {{"rope_type", "yarn"}, {"factor", factor}};
    if (original) scaling["original_max_position_embeddings"] = *original;
    const auto take = [&](const char* key, const char* ours) {
      if (const auto value = find_number(key)) scaling[ours] = *value;
    };
    take("rope.scaling.yarn_attn_factor", "attention_factor");
    take("rope.scaling.yarn_beta_fast", "beta_fast");
    take("rope.scaling.yarn_beta_slow", "beta_slow");
    // gpt-oss' is published so; files do not say it.
    if (family_.model_type == "gpt_oss") scaling["truncate"] = false;
    return scaling;
  }

  // Factors by which the periods of each pair of dimensions are stretched. Llama 3's hold for any
  // length, as longrope's do within the original context.
  void add_tables(const std::string& type, std::optional<std::int64_t> original, Json& scaling) {
    const auto all = read_table("rope_freqs.weight");
    const auto first = read_table("rope_factors_short.weight");
    const auto later = read_table("rope_factors_long.weight");
    if (all && (type == "none" || type == "longrope") && scaling.empty() && !first && !later) {
      scaling = {{"rope_type", "longrope"},
                 {"short_factor", *all},
                 {"long_factor", *all},
                 {"factor", 1.0}};
    } else if (first && later && !all && scaling.empty()) {
      scaling = {{"rope_type", "longrope"}, {"short_factor", *first}, {"long_factor", *later}};
      if (original) scaling["original_max_position_embeddings"] = *original;
      if (const auto attention = find_number("rope.scaling.attn_factor")) {
        scaling["attention_factor"] = *attention;
      }
    } else if (all || first || later || type == "longrope") {
      refuse("'" + full("rope.scaling.type") + "' and the tensors of rotary factors do not fit: " +
             "'rope_freqs.weight' stands alone, and longrope has 'rope_factors_short.weight' and "
             "'rope_factors_long.weight'");
    }
  }

  std::optional<std::vector<float>> read_table(std::string_view name) {
    const gguf::Tensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) return std::nullopt;
    if (tensor->type->name != "F32" || tensor->num_elements() > kRotaryTableMax) {
      refuse("tensor '" + tensor->name + "' is no table of rotary factors in F32");
      return std::nullopt;
    }
    std::vector<float> values(static_cast<std::size_t>(tensor->num_elements()));
    const auto data = WeightsFile::open(file_.origin());
    const auto read = data ? (*data)->read(tensor->begin, tensor->num_bytes, values.data())
                           : Result<void>(data.error());
    if (!read && !error_) error_ = read.error();
    return values;
  }

  void read_rest() {
    const auto has = [&](const char* tensor) { return file_.find_tensor(tensor) != nullptr; };
    const bool has_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
    for (const char* key : {"attention_bias", "use_bias", "use_qkv_bias", "bias"}) {
      json_[key] = has_bias;
    }
    json_["use_qk_norm"] = has("blk.0.attn_q_norm.weight");
    json_["attention_out_bias"] = has("blk.0.attn_output.bias");
    json_["mlp_bias"] = has("blk.0.ffn_up.bias");
    if (family_.keys.windows) read_windows();
    if (family_.keys.experts) read_experts();
    if (family_.keys.multipliers) {
      // Where the file does not say, as in llama.cpp; transformers' own default is 1.
      json_["attention_multiplier"] = 1.0 / std::sqrt(json_["head_dim"].get<double>());
      number("attention.scale", "attention_multiplier");
      number("embedding_scale", "embedding_multiplier");
      number("residual_scale", "residual_multiplier");
      number("logit_scale", "logits_scaling");
    }
    if (family_.keys.logit_scale) number("logit_scale", "logit_scale");
    if (family_.keys.soft_caps) {
      number("attn_logit_softcapping", "attn_logit_softcapping");
      number("final_logit_softcapping", "final_logit_softcapping");
      json_["query_pre_attn_scalar"] =
          std::ranges::count(kGemma27Layers, json_["num_hidden_layers"].get<std::int64_t>()) > 0
              ? json_["hidden_size"].get<double>() / json_["num_attention_heads"].get<double>()
              : json_["head_dim"].get<double>();
    }
    if (family_.keys.parallel) {
      used_.insert("use_parallel_residual");
      json_["use_parallel_residual"] =
          file_.boolean(full("use_parallel_residual"), error_).value_or(true);
    }
  }

  // All layers are sparse, as llama.cpp takes it, where the file does not say.
  void read_experts() {
    const std::int64_t count = size("expert_count", "num_experts");
    for (const char* key : {"num_local_experts", "n_routed_experts", "moe_num_experts"}) {
      json_[key] = count;
    }
    json_["moe_topk"] = json_["moe_k"] = size("expert_used_count", "num_experts_per_tok");
    json_["norm_topk_prob"] = family_.keys.sums_to_one;
    take("expert_feed_forward_length", {"moe_intermediate_size"});
    take("expert_shared_feed_forward_length", {"shared_expert_intermediate_size"});
    if (family_.model_type == "gpt_oss") take("expert_feed_forward_length", {"intermediate_size"});
    if (family_.keys.dense_first) {
      take("leading_dense_block_count", {"first_k_dense_replace", "moe_layer_start_index"});
      take("interleave_moe_layer_step", {"moe_layer_interval"});
      take("expert_shared_count",
           {"n_shared_experts", "moe_num_shared_experts", "num_shared_expert"});
    }
    constexpr std::string_view kScores = "expert_gating_func";
    constexpr std::int64_t kSoftmax = 1;
    constexpr std::int64_t kSigmoid = 2;
    if (gguf_size(file_, family_, kScores) == (family_.keys.sigmoid ? kSigmoid : kSoftmax)) {
      used_.insert(kScores);
    }
    if (!family_.keys.sigmoid) return;
    number("expert_weights_scale", "routed_scaling_factor");
    if (family_.keys.dense_first) {
      take("expert_group_count", {"n_group"});
      take("expert_group_used_count", {"topk_group"});
    }
    used_.insert("expert_weights_norm");
    json_["norm_topk_prob"] = file_.boolean(full("expert_weights_norm"), error_).value_or(false);
  }

  void take(std::string_view key, std::initializer_list<const char*> ours) {
    const auto value = find_size(key);
    for (const char* const one : ours) {
      if (value) json_[one] = *value;
    }
  }

  // How many tokens layers see, and which: a list, or as the family's do where there is none.
  void read_windows() {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    const std::int64_t window =
        find_size("attention.sliding_window").value_or(family_.keys.default_window);
    json_["sliding_window"] = window > 0 ? Json(window) : Json();
    if (window <= 0) return;
    if (!family_.windowed_type.empty()) json_["model_type"] = family_.windowed_type;
    if (!file_.has(full(kPattern))) return;
    used_.insert(kPattern);
    const auto slides = file_.numbers(full(kPattern), error_);
    if (!slides) return;
    for (const double slide : *slides) {
      json_["layer_types"].push_back(slide != 0.0 ? "sliding_attention" : "full_attention");
    }
  }

  void read_end_tokens() {
    std::set<std::int64_t> ids;
    for (const std::string_view key : kEndKeys) {
      if (const auto id = file_.integer(key, error_)) ids.insert(*id);
    }
    const auto tokens = file_.texts("tokenizer.ggml.tokens", error_);
    const auto types = file_.numbers("tokenizer.ggml.token_type", error_);
    if (tokens && types && types->size() == tokens->size()) {
      for (std::size_t id = 0; id < tokens->size(); ++id) {
        if ((*types)[id] == kControlToken && std::find(std::begin(kEndTokens), std::end(kEndTokens),
                                                       (*tokens)[id]) != std::end(kEndTokens)) {
          ids.insert(static_cast<std::int64_t>(id));
        }
      }
    }
    json_["eos_token_id"] = ids;
  }

  const gguf::GgufFile& file_;
  const GgufFamily& family_;
  Json json_ = Json::object();
  std::set<std::string_view> used_;
  std::optional<Error> error_;
};

Result<void> check_file(const gguf::GgufFile& file) {
  std::optional<Error> error;
  const std::int64_t num_files = file.integer("split.count", error).value_or(1);
  if (error) return *error;
  if (num_files > 1) {
    return Error{ErrorCode::kInvalid,
                 file.origin() + ": is one of " + std::to_string(num_files) +
                     " files of a model, and one that holds all is needed: join them by "
                     "llama.cpp's llama-gguf-split --merge"};
  }
  return {};
}

// A scheme for each kind of codes, with the modules that have it.
Quantization read_quantization(const gguf::GgufFile& file, const GgufFamily& family) {
  constexpr std::string_view kLeaf = ".weight";
  Quantization quantization;
  for (const gguf::Tensor& tensor : file.tensors()) {
    const auto grouping = gguf_grouping(file, tensor);
    const auto [name, change] = translate_name(family, tensor.name);
    // Transposed ones are widened.
    if (!grouping || change == GgufChange::kTransposed || !name.ends_with(kLeaf)) continue;
    QuantScheme scheme;
    scheme.num_bits = kernels::code_bits(grouping->codes);
    scheme.is_float = grouping->codes == kernels::CodeType::kE2M1;
    scheme.packed = scheme.num_bits == 4;
    scheme.symmetric = !grouping->has_offsets;
    scheme.strategy = QuantStrategy::kGroup;
    scheme.block_inputs = grouping->group;
    auto known = std::ranges::find_if(quantization.schemes, [&](const QuantScheme& other) {
      return other.num_bits == scheme.num_bits && other.is_float == scheme.is_float &&
             other.symmetric == scheme.symmetric && other.block_inputs == scheme.block_inputs;
    });
    if (known == quantization.schemes.end()) known = quantization.schemes.insert(known, scheme);
    known->targets.push_back(name.substr(0, name.size() - kLeaf.size()));
  }
  if (!quantization.schemes.empty()) {
    quantization.method = QuantMethod::kGguf;
    quantization.name = "gguf";
  }
  return quantization;
}

}  // namespace

Result<GgufConfig> read_gguf_config(const std::string& path, const ConfigOptions& options) {
  const auto file = gguf::GgufFile::open(path);
  if (!file) return file.error();
  if (const auto checked = check_file(*file); !checked) return checked.error();
  const auto family = find_gguf_family(*file);
  if (!family) return family.error();
  Converter converter(*file, **family);
  const auto json = converter.run();
  if (!json) return json.error();
  auto reader = ConfigReader::parse(json->dump(), path + ": its metadata, as config.json", options);
  if (!reader) return reader.error();
  for (const std::string& key : converter.unknown_keys()) {
    reader->refuse_unless_forced("'" + key +
                                 "' is not known here, or has a value that is not supported, and "
                                 "may change what the model computes");
  }
  return GgufConfig{std::move(*reader), read_quantization(*file, **family)};
}

}  // namespace lmtp::model

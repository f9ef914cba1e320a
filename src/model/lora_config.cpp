#include "lora_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lmtp/base/json.h"

namespace lmtp::model {
namespace {

constexpr std::size_t kLoraConfigBytesMax = std::size_t{1} << 20;
constexpr std::int64_t kRankMax = 1 << 16;

constexpr const char* kMerge =
    "; merge the adapter into its model (peft's merge_and_unload) and serve that";

// Of adapters that are more than two matrices a layer, or not added to the model as it is.
struct OtherKind {
  const char* key;
  const char* name;
};
constexpr std::array kOtherKinds = {
    OtherKind{"use_dora", "DoRA"},
    OtherKind{"modules_to_save", "a module that is replaced as a whole"},
    OtherKind{"lora_bias", "a bias of the adapter"},
    OtherKind{"target_parameters", "an adapter of parameters outside of linear layers"},
    OtherKind{"layer_replication", "replicated layers"},
    OtherKind{"alora_invocation_tokens", "aLoRA"},
    OtherKind{"use_qalora", "QALoRA"},
    OtherKind{"trainable_token_indices", "an adapter of embeddings"},
    OtherKind{"megatron_config", "an adapter of Megatron"},
    OtherKind{"arrow_config", "Arrow"},
    OtherKind{"use_bdlora", "BD-LoRA"},
    OtherKind{"monteclora_config", "MonteCLoRA"},
    OtherKind{"kasa_config", "KaSA"},
};
// Switches that change nothing of what a trained adapter is.
constexpr std::array<std::string_view, 5> kHarmlessSwitches = {
    "use_rslora", "fan_in_fan_out", "inference_mode", "ensure_weight_tying", "init_lora_weights"};

bool is_set(const OrderedJson& value) {
  if (value.is_null() || value == false || value == 0) return false;
  return !((value.is_string() || value.is_array() || value.is_object()) && value.empty());
}

}  // namespace

bool LoraConfig::Names::has(const std::string& name) const {
  if (is_all || (pattern && pattern->matches(name))) return true;
  return std::ranges::any_of(endings, [&](const std::string& one) { return is_ending(one, name); });
}

// By the number of its layer, the first number in its name.
bool LoraConfig::has_layer(const std::string& name) const {
  std::string_view before;
  std::string_view rest = name;
  for (std::size_t dot = 0; (dot = rest.find('.')) != std::string_view::npos;) {
    const std::string_view word = rest.substr(0, dot);
    rest.remove_prefix(dot + 1);
    const bool is_number = !word.empty() && word.size() < 9 &&
                           std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    const bool counts =
        layer_words_.empty() || std::ranges::find(layer_words_, before) != layer_words_.end();
    if (is_number && counts) {
      return std::ranges::find(*layers_, std::stoi(std::string(word))) != layers_->end();
    }
    before = word;
  }
  return false;
}

bool LoraConfig::targets(const std::string& name) const {
  if (excluded_.has(name) || !targets_.has(name)) return false;
  const bool is_exact = std::ranges::find(targets_.endings, name) != targets_.endings.end();
  return !layers_ || targets_.endings.empty() || is_exact || has_layer(name);
}

std::vector<std::string> LoraConfig::unknown_targets(const std::vector<std::string>& names) const {
  std::vector<std::string> unknown;
  for (const std::string& target : targets_.endings) {
    const auto is_its = [&](const std::string& name) { return is_ending(target, name); };
    if (std::ranges::none_of(names, is_its)) unknown.push_back(target);
  }
  return unknown;
}

int LoraConfig::rank(const std::string& name) const {
  for (const auto& [pattern, rank] : ranks_) {
    if (pattern.matches(name)) return static_cast<int>(rank);
  }
  return rank_;
}

float LoraConfig::scale(const std::string& name) const {
  double alpha = alpha_;
  for (const auto& [pattern, value] : alphas_) {
    if (!pattern.matches(name)) continue;
    alpha = value;
    break;
  }
  const double of = rank(name);
  return static_cast<float>(alpha / (is_rank_stabilized_ ? std::sqrt(of) : of));
}

// The first error counts.
class LoraConfigReading {
 public:
  explicit LoraConfigReading(const OrderedJson& json) : json_(json) {}

  Result<LoraConfig> read() {
    refuse_kinds();
    LoraConfig config;
    config.rank_ = static_cast<int>(whole("r", 8));
    config.alpha_ = number("lora_alpha", 8.0);
    config.is_rank_stabilized_ = json_.value("use_rslora", OrderedJson()) == true;
    config.targets_ = names("target_modules");
    config.excluded_ = names("exclude_modules");
    config.ranks_ = numbers("rank_pattern");
    config.alphas_ = numbers("alpha_pattern");
    for (const auto& [pattern, rank] : config.ranks_) {
      if (rank < 1 || rank > kRankMax || rank != std::floor(rank)) {
        refuse("rank_pattern", "allowed are whole numbers of 1 and more");
      }
    }
    read_layers(config);
    if (const auto* base = find("base_model_name_or_path"); base != nullptr && base->is_string()) {
      config.base_ = base->get<std::string>();
    }
    if (error_) return *error_;
    return config;
  }

 private:
  const OrderedJson* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  void refuse(const std::string& key, const std::string& what) {
    if (!error_) error_ = Error{ErrorCode::kInvalid, key + ": " + what};
  }

  void refuse_kinds() {
    const auto* type = find("peft_type");
    if (type == nullptr || *type != "LORA") {
      refuse("peft_type",
             "is " + (type != nullptr ? type->dump() : "missing") + "; allowed is \"LORA\"");
    }
    for (const OtherKind& kind : kOtherKinds) {
      const auto* value = find(kind.key);
      if (value == nullptr || !is_set(*value)) continue;
      refuse(kind.key, std::string("this is ") + kind.name + ", which is not served" + kMerge);
    }
    const auto* bias = find("bias");
    if (bias != nullptr && *bias != "none") {
      refuse("bias", "is " + bias->dump() +
                         ", biases of the model are not replaced; allowed is "
                         "\"none\"" +
                         kMerge);
    }
    const auto* made = find("init_lora_weights");
    if (made != nullptr && made->is_string() && *made != "gaussian" && *made != "eva" &&
        *made != "orthogonal") {
      refuse("init_lora_weights", "is " + made->dump() +
                                      ", which changes the model's own weights; save the adapter " +
                                      "with path_initial_model_for_weight_conversion");
    }
    for (const auto& [key, value] : json_.items()) {
      const bool is_harmless = std::ranges::find(kHarmlessSwitches, key) != kHarmlessSwitches.end();
      if (value != true || is_harmless) continue;
      refuse(key, std::string("is a switch that is not known here") + kMerge);
    }
  }

  std::int64_t whole(const char* key, std::int64_t fallback) {
    const auto* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_number_integer()) {
      const auto number = value->get<std::int64_t>();
      if (number >= 1 && number <= kRankMax) return number;
    }
    refuse(key, "a whole number in [1, " + std::to_string(kRankMax) + "] is expected");
    return fallback;
  }
  double number(const char* key, double fallback) {
    const auto* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_number()) return value->get<double>();
    refuse(key, "a number is expected");
    return fallback;
  }

  std::optional<NamePattern> pattern(const char* key, const std::string& expression) {
    auto compiled = NamePattern::compile(expression);
    if (compiled) return *std::move(compiled);
    refuse(key, "'" + expression + "' " + compiled.error().message);
    return std::nullopt;
  }

  LoraConfig::Names names(const char* key) {
    LoraConfig::Names names;
    const auto* value = find(key);
    if (value == nullptr) return names;
    if (value->is_string()) {
      const auto text = value->get<std::string>();
      names.is_all = text == "all-linear";
      if (!names.is_all) names.pattern = pattern(key, text);
      return names;
    }
    if (value->is_array() &&
        std::ranges::all_of(*value, [](const OrderedJson& one) { return one.is_string(); })) {
      names.endings = value->get<std::vector<std::string>>();
    } else {
      refuse(key, "a string or a list of strings is expected");
    }
    return names;
  }

  LoraConfig::Numbers numbers(const char* key) {
    LoraConfig::Numbers numbers;
    const auto* value = find(key);
    if (value == nullptr) return numbers;
    if (!value->is_object()) refuse(key, "an object is expected");
    for (const auto& [name, one] : value->items()) {
      if (!value->is_object() || !one.is_number()) {
        refuse(key, "numbers are expected");
        continue;
      }
      if (auto compiled = pattern(key, "(?:.*\\.)?(?:" + name + ")")) {
        numbers.emplace_back(*std::move(compiled), one.get<double>());
      }
    }
    return numbers;
  }

  void read_layers(LoraConfig& config) {
    if (const auto* value = find("layers_to_transform")) {
      std::vector<std::int64_t> layers;
      const OrderedJson list = value->is_array() ? *value : OrderedJson::array({*value});
      for (const OrderedJson& layer : list) {
        if (layer.is_number_integer()) {
          layers.push_back(layer.get<std::int64_t>());
        } else {
          refuse("layers_to_transform", "a number or a list of numbers is expected");
        }
      }
      if (!layers.empty()) config.layers_ = std::move(layers);
    }
    if (const auto* value = find("layers_pattern")) {
      const OrderedJson list = value->is_array() ? *value : OrderedJson::array({*value});
      for (const OrderedJson& word : list) {
        if (word.is_string() && !word.get_ref<const std::string&>().empty()) {
          config.layer_words_.push_back(word.get<std::string>());
        }
      }
    }
  }

  const OrderedJson& json_;
  std::optional<Error> error_;
};

Result<LoraConfig> LoraConfig::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, path + ": cannot be read; an adapter has one"};
  std::string text(kLoraConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLoraConfigBytesMax) {
    return Error{ErrorCode::kInvalid,
                 path + ": is larger than " + std::to_string(kLoraConfigBytesMax) + " bytes"};
  }
  // In the file's order: of several patterns the first counts.
  const auto json = parse_ordered_json(text, path);
  if (!json) return json.error();
  if (!json->is_object()) return Error{ErrorCode::kInvalid, path + ": is no JSON object"};
  auto config = LoraConfigReading(*json).read();
  if (!config) return Error{config.error().code, path + ": " + config.error().message};
  return config;
}

}  // namespace lmtp::model

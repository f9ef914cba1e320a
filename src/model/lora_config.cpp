#include "lora_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lmtp/base/json.h"
#include "weights_file.h"

namespace lmtp::model {
namespace {

constexpr std::size_t kLoraConfigBytesMax = std::size_t{1} << 20;
constexpr std::int64_t kRankMax = 1 << 16;
constexpr std::size_t kPatternsMax = 4096;

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

// As PEFT has it: in any case.
bool is_all_linear(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text == "all-linear";
}

bool is_set(const OrderedJson& value) {
  return !(value.is_null() || value == false || value == 0 || is_empty_json(value));
}

}  // namespace

Error LoraConfig::broken(const char* key, const std::string& what) const {
  return {ErrorCode::kInvalid, path_ + ": " + key + ": " + what};
}

Result<bool> LoraConfig::has(const Names& names, const char* key, const std::string& name) {
  if (names.is_all) return true;
  if (names.pattern) {
    Result<bool> found = names.pattern->matches(name, budget_);
    if (!found) return broken(key, "the expression " + found.error().message);
    return found;
  }
  return std::ranges::any_of(names.endings,
                             [&](const std::string& one) { return is_ending(one, name); });
}

// By the number of its layer.
Result<bool> LoraConfig::has_layer(const std::string& name) {
  for (const NamePattern& pattern : layer_patterns_) {
    const auto found = pattern.group_of("idx", name, budget_);
    if (!found) return broken("layers_pattern", "an expression " + found.error().message);
    if (!*found) continue;
    const std::string& digits = **found;
    if (digits.empty() || digits.size() > 9) return false;
    return std::ranges::find(*layers_, std::stoi(digits)) != layers_->end();
  }
  return false;
}

Result<double> LoraConfig::number_of(const Numbers& numbers, const char* key,
                                     const std::string& name, double otherwise) {
  for (const auto& [pattern, number] : numbers) {
    const Result<bool> found = pattern.matches_beginning(name, budget_);
    if (!found) return broken(key, "an expression " + found.error().message);
    if (*found) return number;
  }
  return otherwise;
}

Result<std::optional<LoraTarget>> LoraConfig::find(const std::string& name) {
  const Result<bool> is_excluded = has(excluded_, "exclude_modules", name);
  if (!is_excluded) return is_excluded.error();
  Result<bool> is_target = has(targets_, "target_modules", name);
  if (!is_target) return is_target.error();
  const bool is_exact = std::ranges::find(targets_.endings, name) != targets_.endings.end();
  if (*is_target && layers_ && !is_exact) is_target = has_layer(name);
  if (!is_target) return is_target.error();
  if (*is_excluded || !*is_target) return std::optional<LoraTarget>();
  const Result<double> rank = number_of(ranks_, "rank_pattern", name, rank_);
  if (!rank) return rank.error();
  const Result<double> alpha = number_of(alphas_, "alpha_pattern", name, alpha_);
  if (!alpha) return alpha.error();
  LoraTarget target;
  target.rank = static_cast<int>(*rank);
  target.scale = static_cast<float>(*alpha / (is_rank_stabilized_ ? std::sqrt(*rank) : *rank));
  if (!std::isfinite(target.scale)) {
    return broken("lora_alpha", "the scale of '" + name + "' is " + std::to_string(*alpha) +
                                    " by its rank; allowed are numbers that a float holds");
  }
  return std::optional<LoraTarget>(target);
}

std::vector<std::string> LoraConfig::unknown_targets(const std::vector<std::string>& names) const {
  std::vector<std::string> unknown;
  for (const std::string& target : targets_.endings) {
    const auto is_its = [&](const std::string& name) { return is_ending(target, name); };
    if (std::ranges::none_of(names, is_its)) unknown.push_back(target);
  }
  return unknown;
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
  // Also null, which is what NaN and infinities are read as.
  const OrderedJson* find_number(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() ? nullptr : &*at;
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
    const auto* value = find_number(key);
    if (value == nullptr) return fallback;
    if (value->is_number_integer()) {
      const auto number = value->get<std::int64_t>();
      if (number >= 1 && number <= kRankMax) return number;
    }
    refuse(key, "a whole number in [1, " + std::to_string(kRankMax) + "] is expected");
    return fallback;
  }
  double number(const char* key, double fallback) {
    const auto* value = find_number(key);
    if (value == nullptr) return fallback;
    if (value->is_number()) return value->get<double>();
    refuse(key, "a finite number is expected");
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
      names.is_all = key == std::string_view("target_modules") && is_all_linear(text);
      if (!names.is_all && !text.empty()) names.pattern = pattern(key, text);
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
    if (!value->is_object() || value->size() > kPatternsMax) {
      refuse(key, "an object with at most " + std::to_string(kPatternsMax) + " keys is expected");
      return numbers;
    }
    for (const auto& [name, one] : value->items()) {
      if (!one.is_number()) {
        refuse(key, "'" + name + "': a finite number is expected");
      } else if (auto compiled = pattern(key, "(.*\\.)?(" + name + ")$")) {
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
    if (config.layers_ && config.targets_.endings.empty()) {
      refuse("layers_to_transform",
             "is for a list of target_modules; with an expression it says "
             "nothing, and the layers' numbers belong into that");
    }
    if (!config.layers_) return;
    std::vector<std::string> words;
    if (const auto* value = find("layers_pattern")) {
      const OrderedJson list = value->is_array() ? *value : OrderedJson::array({*value});
      for (const OrderedJson& word : list) {
        if (!word.is_string() || list.size() > kPatternsMax) {
          refuse("layers_pattern", "a string or a list of strings is expected");
        } else if (value->is_array() || !word.get_ref<const std::string&>().empty()) {
          words.push_back("(?:^|.*?\\.)" + word.get<std::string>() + "\\.(?P<idx>\\d+)\\.");
        }
      }
    }
    if (words.empty()) words.emplace_back(R"(.*?\.[^.]*\.(?P<idx>\d+)\.)");
    for (const std::string& word : words) {
      if (auto compiled = pattern("layers_pattern", word)) {
        config.layer_patterns_.push_back(*std::move(compiled));
      }
    }
  }

  const OrderedJson& json_;
  std::optional<Error> error_;
};

Result<LoraConfig> LoraConfig::read(const std::string& path) {
  const auto file = WeightsFile::open(path);
  if (!file) return Error{file.error().code, file.error().message + "; an adapter has this file"};
  if ((*file)->size() > kLoraConfigBytesMax) {
    return Error{ErrorCode::kInvalid,
                 path + ": is larger than " + std::to_string(kLoraConfigBytesMax) + " bytes"};
  }
  std::string text((*file)->size(), '\0');
  if (Result<void> read = (*file)->read(0, text.size(), text.data()); !read) return read.error();
  // In the file's order: of several patterns the first counts.
  const auto json = parse_ordered_json(text, path);
  if (!json) return json.error();
  if (!json->is_object()) return Error{ErrorCode::kInvalid, path + ": is no JSON object"};
  auto config = LoraConfigReading(*json).read();
  if (!config) return Error{config.error().code, path + ": " + config.error().message};
  config->path_ = path;
  return config;
}

}  // namespace lmtp::model

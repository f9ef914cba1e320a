#include "lmtp/text/decision_config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "lmtp/base/json.h"

namespace lmtp::text {
namespace {

constexpr std::string_view kKindNames[kNumQuestionKinds] = {"noul", "choice", "score"};
constexpr std::size_t kDecisionJsonBytesMax = std::size_t{1} << 20;

DecisionConfig defaults() {
  DecisionConfig config;
  config.labels[0] = {"Yes", "No"};
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    for (std::size_t kind = 1; kind < kNumQuestionKinds; ++kind) {
      config.labels[kind].emplace_back(1, letter);
    }
  }
  return config;
}

Result<std::vector<std::string>> read_labels(const Json& value) {
  std::vector<std::string> labels;
  for (const Json& label : value.is_array() ? value : Json::array()) {
    const auto* text = label.get_ptr<const std::string*>();
    if (text != nullptr && !text->empty()) labels.push_back(*text);
  }
  const std::set<std::string> distinct(labels.begin(), labels.end());
  if (labels.empty() || labels.size() != value.size() || distinct.size() != labels.size() ||
      labels.size() > kOptionsMax) {
    return Error{ErrorCode::kInvalid, "allowed are 1 to " + std::to_string(kOptionsMax) +
                                          " different texts that are not empty"};
  }
  return labels;
}

Result<void> read_kind(const Json& file, std::size_t kind, DecisionConfig& config) {
  const std::string name(kKindNames[kind]);
  if (const Json* all = find_json(file, "labels")) {
    const Json* given = find_json(*all, name);
    if (given != nullptr && !is_empty_json(*given)) {
      auto labels = read_labels(*given);
      if (!labels) {
        return Error{ErrorCode::kInvalid, "labels." + name + ": " + labels.error().message};
      }
      config.labels[kind] = std::move(*labels);
    }
  }
  if (const Json* all = find_json(file, "temperature")) {
    const Json* given = find_json(*all, name);
    if (given != nullptr) {
      config.temperature[kind] = given->is_number() ? given->get<double>() : 0;
      if (!(config.temperature[kind] > 0) || !std::isfinite(config.temperature[kind])) {
        return Error{ErrorCode::kInvalid, "temperature." + name + ": allowed is a number above 0"};
      }
    }
  }
  return {};
}

// Others are from newer releases, which transformers ignores as well.
Result<void> read_settings(const Json& file, DecisionConfig& config) {
  for (std::size_t kind = 0; kind < kNumQuestionKinds; ++kind) {
    if (auto read = read_kind(file, kind, config); !read) return read;
  }
  if (config.labels[0].size() < 2) {
    return Error{ErrorCode::kInvalid, "labels.noul: needed are two, those of true and of false"};
  }
  config.labels[0].resize(2);  // more are not read in transformers either
  if (const Json* order = find_json(file, "noul_options")) {
    config.false_first = *order == Json::array({"false", "true"});
    if (!config.false_first && *order != Json::array({"true", "false"})) {
      return Error{ErrorCode::kInvalid,
                   "noul_options: allowed are [\"true\", \"false\"] and [\"false\", \"true\"]"};
    }
  }
  if (const std::string* adapter = find_json_text(file, "adapter");
      adapter != nullptr && !adapter->empty()) {
    return Error{ErrorCode::kInvalid,
                 "adapter: decisions of an adapter in a folder of the model's are not supported; "
                 "serve it by --lora-modules and name it as the model"};
  }
  return {};
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Whether it reads the variable: outside comments and texts, and not as a member of another one.
bool reads_questions(std::string_view source) {
  constexpr std::string_view kName = "questions";
  char quote = 0;
  bool in_code = false;
  for (std::size_t at = 0; at < source.size(); ++at) {
    const std::string_view rest = source.substr(at);
    if (!in_code && rest.starts_with("{#")) {
      const std::size_t end = rest.find("#}");
      if (end == std::string_view::npos) return false;
      at += end + 1;
    } else if (!in_code) {
      in_code = rest.starts_with("{{") || rest.starts_with("{%");
    } else if (quote != 0) {
      if (source[at] == '\\') ++at;
      if (at < source.size() && source[at] == quote) quote = 0;
    } else if (rest.starts_with("}}") || rest.starts_with("%}")) {
      in_code = false;
    } else if (source[at] == '\'' || source[at] == '"') {
      quote = source[at];
    } else if (rest.starts_with(kName) && !is_name(source[at - 1]) && source[at - 1] != '.' &&
               (rest.size() == kName.size() || !is_name(rest[kName.size()]))) {
      return true;
    }
  }
  return false;
}

Result<void> read_template_file(const std::string& path, const std::string& folder,
                                std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                DecisionConfig& config) {
  const auto files = read_chat_template(folder, path);
  if (!files) return files.error();
  config.asks_all_at_once = reads_questions(files->templates.at("default"));
  auto made = ChatTemplate::make(*files, std::move(tokenizer));
  if (!made) return Error{made.error().code, path + ": " + made.error().message};
  config.chat_template = std::move(*made);
  return {};
}

// Empty: the folder has none.
std::string file_in(const std::string& folder, const char* name) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  return std::filesystem::is_regular_file(path, error) ? path.string() : std::string();
}

std::optional<double> as_temperature(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value > 0 && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

Result<std::array<double, kNumQuestionKinds>> parse_decision_temperature(const std::string& text) {
  std::array<double, kNumQuestionKinds> all = {0, 0, 0};
  if (const auto value = as_temperature(text)) {
    all.fill(*value);
    return all;
  }
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto* const name =
        std::ranges::find(kKindNames, std::string_view(part).substr(0, equals));
    const auto value = as_temperature(part.substr(std::min(equals + 1, part.size())));
    if (name == std::end(kKindNames) || !value) {
      return Error{ErrorCode::kInvalid,
                   "allowed is a number above 0, or one for each kind of question, such as "
                   "noul=1.2,choice=0.8,score=1"};
    }
    all[static_cast<std::size_t>(name - std::begin(kKindNames))] = *value;
  }
  return all;
}

LoadedDecisions read_decision_config(const std::string& folder, const DecisionOptions& options,
                                     std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  DecisionConfig config = defaults();
  if (const std::string path = file_in(folder, "decision.json"); !path.empty()) {
    const auto file = read_json_object(path, kDecisionJsonBytesMax);
    if (!file) return file.error();
    if (auto read = read_settings(*file, config); !read) {
      return Error{read.error().code, path + ": " + read.error().message};
    }
  }
  for (std::size_t kind = 0; kind < kNumQuestionKinds; ++kind) {
    if (options.temperature[kind] > 0) config.temperature[kind] = options.temperature[kind];
  }
  const std::string path = options.chat_template_file.empty()
                               ? file_in(folder, "decision_template.jinja")
                               : options.chat_template_file;
  if (!path.empty()) {
    auto read = read_template_file(path, folder, std::move(tokenizer), config);
    if (!read) return read.error();
  }
  return std::make_shared<const DecisionConfig>(std::move(config));
}

std::shared_ptr<const DecisionConfig> default_decisions() {
  static const auto made = std::make_shared<const DecisionConfig>(defaults());
  return made;
}

}  // namespace lmtp::text

#include "lmtp/text/embedding_config.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lmtp/base/json.h"

namespace lmtp::text {
namespace {

constexpr std::size_t kModuleJsonBytesMax = std::size_t{1} << 20;
constexpr std::size_t kPromptsOfModelMax = 1024;

Error wrong_file(const std::string& path, const std::string& what) {
  return {ErrorCode::kInvalid, path + ": " + what};
}

// Null: there is no such file.
Result<Json> read_if_there(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return Json();
  return read_json_object(path, kModuleJsonBytesMax);
}

// The first releases of sentence-transformers have a member for each mode, later ones its name.
std::vector<std::string> pooling_modes(const Json& file) {
  constexpr std::string_view kMember = "pooling_mode";
  if (const std::string* mode = find_json_text(file, kMember)) return {*mode};
  std::vector<std::string> modes;
  for (const auto& [key, value] : file.items()) {
    if (!key.starts_with(kMember) || !value.is_boolean() || !value.get<bool>()) continue;
    std::string mode = key.substr(std::min(key.size(), kMember.size() + 1));
    for (const std::string_view ending : {"_tokens", "_token"}) {
      if (mode.ends_with(ending)) mode.resize(mode.size() - ending.size());
    }
    modes.push_back(std::move(mode));
  }
  return modes;
}

Result<void> read_pooling(const std::string& path, EmbeddingConfig& config) {
  const auto file = read_if_there(path);
  if (!file) return file.error();
  if (file->is_null()) return wrong_file(path, "is missing; modules.json needs it");
  constexpr std::pair<std::string_view, Pooling> kModes[] = {
      {"lasttoken", Pooling::kLast}, {"cls", Pooling::kFirst}, {"mean", Pooling::kMean}};
  const std::vector<std::string> modes = pooling_modes(*file);
  const auto* const found = std::ranges::find_if(
      kModes, [&](const auto& mode) { return modes.size() == 1 && modes.front() == mode.first; });
  if (found == std::end(kModes)) {
    std::string given;
    for (const std::string& mode : modes) given += (given.empty() ? "'" : " and '") + mode + "'";
    return wrong_file(path, "the pooling is " + (given.empty() ? "not given" : given) +
                                "; allowed is one of lasttoken, mean and cls");
  }
  config.pooling = found->second;
  if (!find_json_bool(*file, "include_prompt").value_or(true) && config.pooling != Pooling::kLast) {
    return wrong_file(path, "include_prompt is false, which leaves tokens out; allowed is true");
  }
  return {};
}

Result<void> read_judge(const std::string& path, EmbeddingConfig& config) {
  const auto file = read_if_there(path);
  if (!file) return file.error();
  JudgeTokens& judge = config.judge.emplace();
  for (const auto& [key, id] :
       {std::pair("true_token_id", &judge.yes), std::pair("false_token_id", &judge.no)}) {
    const Json* given = file->is_null() ? nullptr : find_json(*file, key);
    const std::int64_t number = given == nullptr ? -1 : json_integer(*given).value_or(-1);
    if (number < 0 || number > INT32_MAX) {
      return wrong_file(path, std::string(key) + " is missing or wrong; a token's id is needed");
    }
    *id = static_cast<TokenId>(number);
  }
  if (judge.yes == judge.no) {
    return wrong_file(path, "true_token_id is false_token_id; two tokens are needed");
  }
  return {};
}

Result<void> read_module(const std::string& folder, const Json& module, EmbeddingConfig& config) {
  const std::string origin = folder + "/modules.json";
  const std::string* type = module.is_object() ? find_json_text(module, "type") : nullptr;
  const std::string* path = module.is_object() ? find_json_text(module, "path") : nullptr;
  if (type == nullptr || path == nullptr || path->find("..") != std::string::npos) {
    return wrong_file(origin,
                      "a module has no type, or no path inside the folder; both are needed");
  }
  const std::string name = type->substr(type->rfind('.') + 1);
  const std::string file = folder + "/" + *path + "/config.json";
  if (name == "Transformer") {
    if (path->empty() || *path == ".") return {};
    return wrong_file(origin, "the model is in '" + *path + "'; expected is the folder itself");
  }
  if (name == "Pooling") return read_pooling(file, config);
  if (name == "LogitScore") return read_judge(file, config);
  if (name == "Normalize") {
    config.normalizes = true;
    return {};
  }
  return wrong_file(origin, "the module '" + name +
                                "' is not computed here; allowed are Transformer, Pooling, "
                                "Normalize and LogitScore");
}

Result<void> read_prompts(const std::string& path, EmbeddingConfig& config) {
  const auto file = read_if_there(path);
  if (!file) return file.error();
  if (file->is_null()) return {};
  if (const Json* prompts = find_json(*file, "prompts");
      prompts != nullptr && prompts->is_object()) {
    if (prompts->size() > kPromptsOfModelMax) {
      return wrong_file(path, "has more prompts than the allowed 1024");
    }
    for (const auto& [name, text] : prompts->items()) {
      if (text.is_string()) config.prompts[name] = text.get<std::string>();
    }
  }
  if (const std::string* name = find_json_text(*file, "default_prompt_name")) {
    config.default_prompt = *name;
    if (!name->empty() && !config.prompts.contains(*name)) {
      return wrong_file(path,
                        "default_prompt_name is no name of a prompt; one of prompts is needed");
    }
  }
  return {};
}

Result<void> read_texts_of_model(const std::string& path, EmbeddingConfig& config) {
  const auto file = read_if_there(path);
  if (!file) return file.error();
  if (file->is_null()) return {};
  if (find_json_bool(*file, "do_lower_case").value_or(false)) {
    return wrong_file(path, "do_lower_case is true; allowed is false, texts are taken as they are");
  }
  if (const Json* length = find_json(*file, "max_seq_length")) {
    const std::int64_t most = json_integer(*length).value_or(0);
    config.max_tokens = static_cast<int>(std::clamp<std::int64_t>(most, 0, INT32_MAX));
  }
  return {};
}

bool is_named_as_judge(std::string folder) {
  std::ranges::transform(folder, folder.begin(), [](unsigned char c) { return std::tolower(c); });
  return folder.find("qwen3-reranker") != std::string::npos;
}

}  // namespace

LoadedEmbeddings read_embedding_config(const std::string& folder) {
  EmbeddingConfig config;
  const std::string path = folder + "/modules.json";
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    const auto modules = read_json_file(path, kModuleJsonBytesMax);
    if (!modules) return modules.error();
    if (!modules->is_array() || modules->empty()) {
      return wrong_file(path, "has no list of modules, which is needed");
    }
    config.normalizes = false;
    config.is_trained = true;
    for (const Json& module : *modules) {
      if (auto read = read_module(folder, module, config); !read) return read.error();
    }
    auto read = read_prompts(folder + "/config_sentence_transformers.json", config);
    if (read) read = read_texts_of_model(folder + "/sentence_bert_config.json", config);
    if (!read) return read.error();
  }
  if (!config.judge && !config.is_trained && is_named_as_judge(folder)) config.judge.emplace();
  return std::make_shared<const EmbeddingConfig>(std::move(config));
}

std::shared_ptr<const EmbeddingConfig> default_embeddings() {
  static const auto kDefaults = std::make_shared<const EmbeddingConfig>();
  return kDefaults;
}

}  // namespace lmtp::text

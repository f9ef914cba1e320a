// Which templates a folder has.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lmtp/base/json.h"
#include "lmtp/base/model_source.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"
#include "lmtp/gguf/gguf_file.h"
#include "lmtp/text/chat_template.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTemplateBytesMax = std::size_t{1} << 20;
constexpr std::size_t kTemplatesMax = 64;
constexpr std::string_view kEnding = ".jinja";

Result<std::string> read_template(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kTemplateBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad() || !(file.eof() || text.size() > kTemplateBytesMax)) {
    return Error{ErrorCode::kUnavailable, path.string() + ": cannot be read"};
  }
  if (text.size() > kTemplateBytesMax) {
    return Error{ErrorCode::kInvalid,
                 path.string() + ": has more than " + size_text(kTemplateBytesMax)};
  }
  if (!is_utf8(text)) return Error{ErrorCode::kInvalid, path.string() + ": is not UTF-8"};
  return text;
}

Result<void> read_jinja_files(const std::string& folder, ChatTemplateFiles& files) {
  std::map<std::string, fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder + "/additional_chat_templates", error)) {
    if (entry.path().extension() != kEnding || paths.size() >= kTemplatesMax) continue;
    paths[entry.path().stem()] = entry.path();
  }
  const fs::path usual = folder + "/chat_template.jinja";
  if (fs::exists(usual, error)) paths["default"] = usual;
  for (const auto& [name, path] : paths) {
    auto text = read_template(path);
    if (!text) return text.error();
    files.templates[name] = std::move(*text);
  }
  return {};
}

// "chat_template": "..." or [{"name": "default", "template": "..."}, ...], which
// chat_template.jinja comes before; and "response_template".
Result<void> read_config(const std::string& path, ChatTemplateFiles& files) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const auto config = read_json_object(path);
  if (!config) return files.templates.empty() ? config.error() : Result<void>();
  if (const Json* response = find_json(*config, "response_template")) {
    files.response_template = response->dump();
  }
  if (!files.templates.empty()) return {};
  const Json* value = find_json(*config, "chat_template");
  if (value == nullptr) return {};
  if (value->is_string()) {
    files.templates["default"] = value->get<std::string>();
    return {};
  }
  for (const Json& named : value->is_array() ? *value : Json::array()) {
    const std::string* name = find_json_text(named, "name");
    const std::string* text = find_json_text(named, "template");
    if (name != nullptr && text != nullptr) files.templates[*name] = *text;
  }
  if (!files.templates.empty()) return {};
  return Error{ErrorCode::kInvalid,
               path + ": 'chat_template' is neither a text nor a list of names and templates"};
}

// tokenizer.chat_template, and tokenizer.chat_template.NAME of others.
Result<void> read_metadata(const std::string& path, ChatTemplateFiles& files) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  const auto file = gguf::GgufFile::open(path);
  if (!file) return file.error();
  for (const std::string_view key : file->keys()) {
    const bool is_usual = key == kKey;
    if (!is_usual && !(key.starts_with(kKey) && key[kKey.size()] == '.')) continue;
    std::optional<Error> mistyped;
    const auto text = file->text(key, mistyped);
    if (mistyped) return *mistyped;
    if (text->size() > kTemplateBytesMax || files.templates.size() >= kTemplatesMax) continue;
    files.templates[is_usual ? "default" : std::string(key.substr(kKey.size() + 1))] = *text;
  }
  return {};
}

}  // namespace

Result<ChatTemplateFiles> read_chat_template(const std::string& folder,
                                             const std::string& override_file) {
  ChatTemplateFiles files;
  if (!override_file.empty()) {
    auto text = read_template(override_file);
    if (!text) return text.error();
    files.templates["default"] = std::move(*text);
  } else {
    auto read = is_gguf(folder) ? read_metadata(folder, files) : read_jinja_files(folder, files);
    if (!read) return read.error();
    const std::string config = folder + "/tokenizer_config.json";
    if (read = read_config(config, files); !read) return read.error();
    if (!files.templates.contains("default")) {
      return Error{ErrorCode::kNotFound,
                   "this model has no chat template (neither chat_template.jinja nor one in "
                   "tokenizer_config.json or in a GGUF file's metadata): start the server with "
                   "--chat-template FILE"};
    }
  }
  auto special_tokens = tokenizer::named_special_tokens(folder);
  if (!special_tokens) return special_tokens.error();
  files.special_tokens = std::move(*special_tokens);
  return files;
}

}  // namespace lmtp::text

#include "folder_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "bpe.h"
#include "json_file.h"
#include "lmtp/base/json.h"

namespace lmtp::tokenizer {
namespace {

constexpr std::string_view kAdditional = "additional_special_tokens";
constexpr std::string_view kExtra = "extra_special_tokens";  // the same in transformers 5
constexpr std::array<const char*, 7> kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

// transformers' class for a model_type, if no file names the class.
struct ClassOfType {
  std::string_view model_type, tokenizer_class;
};
constexpr ClassOfType kClasses[] = {
    {"gpt2", "GPT2Tokenizer"},        {"gpt_neo", "GPT2Tokenizer"},
    {"gptj", "GPT2Tokenizer"},        {"opt", "GPT2Tokenizer"},
    {"gpt_bigcode", "GPT2Tokenizer"}, {"gpt_neox", "GPTNeoXTokenizer"},
    {"llama", "LlamaTokenizer"},      {"mistral", "LlamaTokenizer"},
    {"mixtral", "LlamaTokenizer"},    {"phi3", "LlamaTokenizer"},
    {"qwen2", "Qwen2Tokenizer"},      {"qwen2_moe", "Qwen2Tokenizer"},
    {"qwen3", "Qwen2Tokenizer"},      {"qwen3_moe", "Qwen2Tokenizer"},
    {"gemma", "GemmaTokenizer"},      {"gemma2", "GemmaTokenizer"},
    {"gemma3_text", "GemmaTokenizer"}};

// A class's default special tokens.
struct ClassDefault {
  std::string_view tokenizer_class, role, content;
};
constexpr ClassDefault kDefaults[] = {{"GPT2Tokenizer", "bos_token", "<|endoftext|>"},
                                      {"GPT2Tokenizer", "eos_token", "<|endoftext|>"},
                                      {"GPT2Tokenizer", "unk_token", "<|endoftext|>"},
                                      {"GPTNeoXTokenizer", "bos_token", "<|endoftext|>"},
                                      {"GPTNeoXTokenizer", "eos_token", "<|endoftext|>"},
                                      {"GPTNeoXTokenizer", "unk_token", "<|endoftext|>"},
                                      {"Qwen2Tokenizer", "eos_token", "<|endoftext|>"},
                                      {"Qwen2Tokenizer", "unk_token", "<|endoftext|>"},
                                      {"Qwen2Tokenizer", "pad_token", "<|endoftext|>"},
                                      {"LlamaTokenizer", "bos_token", "<s>"},
                                      {"LlamaTokenizer", "eos_token", "</s>"},
                                      {"LlamaTokenizer", "unk_token", "<unk>"},
                                      {"GemmaTokenizer", "bos_token", "<bos>"},
                                      {"GemmaTokenizer", "eos_token", "<eos>"},
                                      {"GemmaTokenizer", "unk_token", "<unk>"},
                                      {"GemmaTokenizer", "pad_token", "<pad>"}};

std::string text_or(const Json& object, std::string_view key, std::string_view fallback) {
  const std::string* text = find_json_text(object, key);
  return text != nullptr ? *text : std::string(fallback);
}

AddedToken read_flags(const Json& entry) {
  const auto flag = [&entry](std::string_view key, bool fallback) {
    return find_json_bool(entry, key).value_or(fallback);
  };
  AddedToken token;
  token.content = text_or(entry, "content", "");
  token.special = flag("special", false);
  token.normalized = flag("normalized", !token.special);
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  return token;
}

// "text" or {"content": "text", ...}
std::optional<SpecialToken> read_special(std::string_view role, const Json& value) {
  SpecialToken special;
  special.role = role;
  if (const auto* text = value.get_ptr<const std::string*>()) {
    special.token.content = *text;
  } else if (value.is_object()) {
    special.token = read_flags(value);
    special.has_flags = true;
  }
  if (special.token.content.empty()) return std::nullopt;
  return special;
}

// A key that is present, even null, replaces earlier values.
void take_specials(const Json& config, std::vector<SpecialToken>& specials) {
  for (const char* role : kRoles) {
    const auto value = config.find(role);
    if (value == config.end()) continue;
    std::erase_if(specials, [role](const SpecialToken& s) { return s.role == role; });
    if (auto special = read_special(role, *value)) specials.push_back(std::move(*special));
  }
  for (const std::string_view key : {kAdditional, kExtra}) {
    const Json* more = find_json(config, key);
    if (more == nullptr || !more->is_array()) continue;
    for (const Json& item : *more) {
      auto special = read_special(kAdditional, item);
      const auto same = [&](const SpecialToken& s) {
        return s.role == kAdditional && s.token == special->token;
      };
      if (special && std::none_of(specials.begin(), specials.end(), same)) {
        specials.push_back(std::move(*special));
      }
    }
  }
}

// added_tokens_decoder: {"50256": {"content": ..., "special": ..., "lstrip": ...}, ...}
Result<void> read_added_tokens_decoder(const Json& config, FolderConfig& out) {
  const Json* decoder = find_json(config, "added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) {
    out.added_is_old_style = true;
    return {};
  }
  for (const auto& [key, entry] : decoder->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const std::string place = "'added_tokens_decoder': '" + key + "'";
    if (error != std::errc() || end != key.data() + key.size() || !entry.is_object()) {
      return Error{ErrorCode::kInvalid, place + " is not an id with a token"};
    }
    if (const auto content = need_json(entry, "content", place); !content) return content.error();
    out.added.push_back(read_flags(entry));
    out.added.back().id = id;
  }
  return {};
}

// added_tokens.json: {"<extra>": 50257, ...}
Result<void> read_added_tokens_json(const Json& root, FolderConfig& out) {
  for (const auto& [content, value] : root.items()) {
    const auto id = json_integer(value);
    if (!id || *id < 0 || *id > kTokenIdMax) {
      return Error{ErrorCode::kInvalid, "the id of '" + content + "' is not allowed"};
    }
    AddedToken token;
    token.id = static_cast<TokenId>(*id);
    token.content = content;
    token.special = std::any_of(
        out.specials.begin(), out.specials.end(),
        [&](const SpecialToken& special) { return special.token.content == token.content; });
    token.normalized = !token.special;
    out.added.push_back(std::move(token));
  }
  return {};
}

void take_class(std::string_view name, FolderConfig& out) {
  if (!out.tokenizer_class.empty() || name.empty()) return;
  if (name.ends_with("Fast")) name.remove_suffix(4);
  // CodeLlama differs only in its infilling, which is not used here.
  out.tokenizer_class = name == "CodeLlamaTokenizer" ? "LlamaTokenizer" : name;
}

// An id, or the first of a list.
TokenId id_of(const Json& config, const char* key) {
  const Json* value = find_json(config, key);
  if (value != nullptr && value->is_array()) value = value->empty() ? nullptr : &value->front();
  if (value == nullptr) return -1;
  const std::int64_t id = json_integer(*value).value_or(-1);
  return id >= 0 && id <= kTokenIdMax ? static_cast<TokenId>(id) : -1;
}

Result<void> read_tokenizer_config(const Json& root, FolderConfig& out) {
  out.present = true;
  take_class(text_or(root, "tokenizer_class", ""), out);
  out.from_v5 = find_json(root, "backend") != nullptr;  // 4.57 knows no such key
  out.add_bos = find_json_bool(root, "add_bos_token");
  out.add_eos = find_json_bool(root, "add_eos_token");
  out.add_prefix_space = find_json_bool(root, "add_prefix_space");
  out.add_prefix_space_is_null =
      root.contains("add_prefix_space") && root["add_prefix_space"].is_null();
  out.legacy = find_json_bool(root, "legacy");
  return read_added_tokens_decoder(root, out);
}

void read_model_config(const Json& root, FolderConfig& out) {
  out.present = true;
  take_class(text_or(root, "tokenizer_class", ""), out);
  const std::string type = text_or(root, "model_type", "");
  for (const ClassOfType& known : kClasses) {
    if (known.model_type == type) take_class(known.tokenizer_class, out);
  }
  out.config_bos_id = id_of(root, "bos_token_id");
  out.config_eos_id = id_of(root, "eos_token_id");
}

// The file's object; null if the file does not exist.
Result<Json> read_if_there(const std::string& path) {
  if (!file_exists(path)) return Json();
  return read_json_object(path);
}

// Guesses the class from the files, if none is named.
void guess_class(const std::string& folder, FolderConfig& config) {
  if (!config.tokenizer_class.empty() || file_exists(folder + "/tokenizer.json")) return;
  config.tokenizer_class =
      file_exists(folder + "/tokenizer.model") ? "LlamaTokenizer" : "GPT2Tokenizer";
}

void add_class_defaults(FolderConfig& config) {
  for (const ClassDefault& usual : kDefaults) {
    if (usual.tokenizer_class != config.tokenizer_class) continue;
    SpecialToken special;
    special.role = usual.role;
    special.token.content = usual.content;
    special.by_class = true;
    config.specials.push_back(std::move(special));
  }
}

// Before added_tokens_decoder there were two more files.
Result<void> read_old_files(const std::string& folder, FolderConfig& config) {
  const auto map = read_if_there(folder + "/special_tokens_map.json");
  if (!map) return map.error();
  take_specials(*map, config.specials);
  const std::string added_path = folder + "/added_tokens.json";
  const auto added = read_if_there(added_path);
  if (!added) return added.error();
  const auto read = read_added_tokens_json(*added, config);
  return read ? read : Error{read.error().code, added_path + ": " + read.error().message};
}

const SpecialToken* special_of(const FolderConfig& config, std::string_view role) {
  for (const SpecialToken& special : config.specials) {
    if (special.role == role) return &special;
  }
  return nullptr;
}

bool same_but_id(const AddedToken& a, AddedToken b) {
  b.id = a.id;
  return a == b;
}

const AddedToken* with_content(const std::vector<AddedToken>& tokens, std::string_view content) {
  for (const AddedToken& token : tokens) {
    if (token.content == content) return &token;
  }
  return nullptr;
}

// The tokens that transformers adds after constructing the tokenizer, in its order.
std::vector<AddedToken> tokens_to_add(const FolderConfig& config, PlainSpecials plain,
                                      const std::vector<AddedToken>& present) {
  std::vector<AddedToken> listed = config.added;
  if (config.added_is_old_style) {
    for (const AddedToken& token : present) {
      std::erase_if(listed, [&](const AddedToken& other) { return other.id == token.id; });
      listed.push_back(token);
    }
  }
  std::stable_sort(listed.begin(), listed.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::vector<AddedToken> adding;
  for (AddedToken token : listed) {
    const AddedToken* old = with_content(present, token.content);
    if (old != nullptr && same_but_id(*old, token)) continue;
    for (const SpecialToken& special : config.specials) {
      if (special.token.content == token.content) token.special = true;
    }
    adding.push_back(std::move(token));
  }
  for (const SpecialToken& special : config.specials) {
    AddedToken token = special.token;
    bool has_flags = special.has_flags;
    if (special.role != kAdditional) {
      const AddedToken* known =
          with_content(config.added_is_old_style ? present : listed, token.content);
      if (known != nullptr) token = *known;
      has_flags = has_flags || known != nullptr;
      if (!has_flags) token.normalized = plain.as_tokens && plain.normalized;
      has_flags = has_flags || plain.as_tokens;
    }
    token.special = true;
    const bool known = with_content(present, token.content) != nullptr ||
                       with_content(adding, token.content) != nullptr;
    if (has_flags || !known) adding.push_back(std::move(token));
  }
  return adding;
}

}  // namespace

Result<FolderConfig> read_folder_config(const std::string& folder) {
  FolderConfig config;
  config.added_is_old_style = true;
  const std::string tokenizer_path = folder + "/tokenizer_config.json";
  const auto tokenizer_config = read_if_there(tokenizer_path);
  if (!tokenizer_config) return tokenizer_config.error();
  if (!tokenizer_config->is_null()) {
    config.added_is_old_style = false;
    if (auto read = read_tokenizer_config(*tokenizer_config, config); !read) {
      return Error{read.error().code, tokenizer_path + ": " + read.error().message};
    }
  }
  const auto model_config = read_if_there(folder + "/config.json");
  if (!model_config) return model_config.error();
  if (!model_config->is_null()) read_model_config(*model_config, config);
  guess_class(folder, config);
  add_class_defaults(config);
  take_specials(*tokenizer_config, config.specials);
  if (config.added_is_old_style) {
    if (auto read = read_old_files(folder, config); !read) return read.error();
  }
  const auto order_of = [](const SpecialToken& special) {
    return std::find(kRoles.begin(), kRoles.end(), special.role) - kRoles.begin();
  };
  std::stable_sort(
      config.specials.begin(), config.specials.end(),
      [&](const SpecialToken& a, const SpecialToken& b) { return order_of(a) < order_of(b); });
  return config;
}

std::string_view special_content(const FolderConfig& config, std::string_view role) {
  const SpecialToken* special = special_of(config, role);
  return special == nullptr ? std::string_view() : special->token.content;
}

void apply_folder_config(const FolderConfig& config, PlainSpecials plain, TokenizerParts& parts) {
  parts.added.add(tokens_to_add(config, plain, parts.added.tokens()), *parts.model);
  const auto id_of_role = [&](std::string_view role, TokenId fallback) {
    if (const SpecialToken* special = special_of(config, role)) {
      const TokenId id = parts.added.find(special->token.content, *parts.model);
      if (id >= 0) return id;
    }
    const TokenId end = std::max(parts.model->id_end(), parts.added.id_end());
    return fallback < end ? fallback : -1;
  };
  const TokenId from_prefix = parts.prefix.size() == 1 ? parts.prefix.front() : -1;
  parts.bos_id =
      id_of_role("bos_token", config.config_bos_id >= 0 ? config.config_bos_id : from_prefix);
  parts.eos_id = id_of_role("eos_token", config.config_eos_id);
}

}  // namespace lmtp::tokenizer

#include "folder_config.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "bpe.h"
#include "json_file.h"

namespace lmtp::tokenizer {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::string_view kAdditional = "additional_special_tokens";
constexpr std::array<const char*, 7> kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

// The class that transformers takes where only the model's type is known.
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

// Special tokens that a class has where no file names others.
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

AddedToken read_flags(const object& entry) {
  AddedToken token;
  token.content = string_or(entry, "content", "");
  token.special = bool_or(entry, "special", false);
  token.normalized = bool_or(entry, "normalized", !token.special);
  token.single_word = bool_or(entry, "single_word", false);
  token.lstrip = bool_or(entry, "lstrip", false);
  token.rstrip = bool_or(entry, "rstrip", false);
  return token;
}

// "text" or {"content": "text", ...}
std::optional<SpecialToken> read_special(std::string_view role, const element& value) {
  SpecialToken special;
  special.role = role;
  std::string_view text;
  object entry;
  if (value.get_string().get(text) == simdjson::SUCCESS) {
    special.token.content = text;
  } else if (value.get_object().get(entry) == simdjson::SUCCESS) {
    special.token = read_flags(entry);
    special.has_flags = true;
  }
  if (special.token.content.empty()) return std::nullopt;
  return special;
}

// A key that is there, be it null, takes the place of what was known before.
void take_specials(const object& config, std::vector<SpecialToken>& specials) {
  for (const char* role : kRoles) {
    element value;
    if (config[role].get(value) != simdjson::SUCCESS) continue;
    std::erase_if(specials, [role](const SpecialToken& s) { return s.role == role; });
    if (auto special = read_special(role, value)) specials.push_back(std::move(*special));
  }
  array more;
  if (config[kAdditional].get_array().get(more) != simdjson::SUCCESS) return;
  for (const element item : more) {
    auto special = read_special(kAdditional, item);
    const auto same = [&](const SpecialToken& s) {
      return s.role == kAdditional && s.token == special->token;
    };
    if (special && std::none_of(specials.begin(), specials.end(), same)) {
      specials.push_back(std::move(*special));
    }
  }
}

// added_tokens_decoder: {"50256": {"content": ..., "special": ..., "lstrip": ...}, ...}
Result<void> read_added_tokens_decoder(const object& config, FolderConfig& out) {
  object decoder;
  if (config["added_tokens_decoder"].get_object().get(decoder) != simdjson::SUCCESS) {
    out.added_is_old_style = true;
    return {};
  }
  for (const auto [key, value] : decoder) {
    object entry;
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() ||
        value.get_object().get(entry) != simdjson::SUCCESS) {
      return Error{"'added_tokens_decoder': '" + std::string(key) + "' is not an id with a token"};
    }
    out.added.push_back(read_flags(entry));
    out.added.back().id = id;
  }
  return {};
}

// added_tokens.json: {"<extra>": 50257, ...}
Result<void> read_added_tokens_json(const object& root, FolderConfig& out) {
  for (const auto [content, value] : root) {
    std::int64_t id = 0;
    if (value.get_int64().get(id) != simdjson::SUCCESS || id < 0 || id > kTokenIdMax) {
      return Error{"the id of '" + std::string(content) + "' is not allowed"};
    }
    AddedToken token;
    token.id = static_cast<TokenId>(id);
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
  // The same but for how it fills a gap in code.
  out.tokenizer_class = name == "CodeLlamaTokenizer" ? "LlamaTokenizer" : name;
}

// A list begins with the id that counts.
TokenId id_of(const object& config, const char* key) {
  element value;
  array several;
  std::int64_t id = -1;
  if (config[key].get(value) != simdjson::SUCCESS) return -1;
  if (value.get_array().get(several) == simdjson::SUCCESS) {
    if (several.size() == 0 || several.at(0).get_int64().get(id) != simdjson::SUCCESS) return -1;
  } else if (value.get_int64().get(id) != simdjson::SUCCESS) {
    return -1;
  }
  return id >= 0 && id <= kTokenIdMax ? static_cast<TokenId>(id) : -1;
}

Result<void> read_tokenizer_config(const object& root, FolderConfig& out) {
  out.present = true;
  take_class(string_or(root, "tokenizer_class", ""), out);
  out.add_bos = optional_bool(root, "add_bos_token");
  out.add_prefix_space = optional_bool(root, "add_prefix_space");
  element prefix_space;
  out.add_prefix_space_is_null =
      root["add_prefix_space"].get(prefix_space) == simdjson::SUCCESS && prefix_space.is_null();
  out.legacy = optional_bool(root, "legacy");
  return read_added_tokens_decoder(root, out);
}

void read_model_config(const object& root, FolderConfig& out) {
  out.present = true;
  take_class(string_or(root, "tokenizer_class", ""), out);
  const std::string_view type = string_or(root, "model_type", "");
  for (const ClassOfType& known : kClasses) {
    if (known.model_type == type) take_class(known.tokenizer_class, out);
  }
  out.config_bos_id = id_of(root, "bos_token_id");
  out.config_eos_id = id_of(root, "eos_token_id");
}

// The file's object; nothing where it is not there.
Result<std::optional<object>> read_if_there(const std::string& path, JsonFile& file) {
  if (!file_exists(path)) return std::optional<object>();
  const auto root = file.read(path);
  if (!root) return root.error();
  return std::optional<object>(*root);
}

// The class whose files these are, where nothing says it.
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
    config.specials.push_back(std::move(special));
  }
}

// Before added_tokens_decoder there were two more files.
Result<void> read_old_files(const std::string& folder, FolderConfig& config) {
  JsonFile map_file;
  const auto map = read_if_there(folder + "/special_tokens_map.json", map_file);
  if (!map) return map.error();
  if (*map) take_specials(**map, config.specials);
  const std::string added_path = folder + "/added_tokens.json";
  JsonFile added_file;
  const auto added = read_if_there(added_path, added_file);
  if (!added) return added.error();
  if (!*added) return {};
  const auto read = read_added_tokens_json(**added, config);
  return read ? read : Error{added_path + ": " + read.error().message};
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

// The tokens that transformers adds once it has made the tokenizer, in its order.
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
  JsonFile tokenizer_file;
  const auto tokenizer_config = read_if_there(tokenizer_path, tokenizer_file);
  if (!tokenizer_config) return tokenizer_config.error();
  if (*tokenizer_config) {
    config.added_is_old_style = false;
    if (auto read = read_tokenizer_config(**tokenizer_config, config); !read) {
      return Error{tokenizer_path + ": " + read.error().message};
    }
  }
  JsonFile model_file;
  const auto model_config = read_if_there(folder + "/config.json", model_file);
  if (!model_config) return model_config.error();
  if (*model_config) read_model_config(**model_config, config);
  guess_class(folder, config);
  add_class_defaults(config);
  if (*tokenizer_config) take_specials(**tokenizer_config, config.specials);
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
  const auto id_of_role = [&](std::string_view role, TokenId otherwise) {
    if (const SpecialToken* special = special_of(config, role)) {
      const TokenId id = parts.added.find(special->token.content, *parts.model);
      if (id >= 0) return id;
    }
    const TokenId end = std::max(parts.model->id_end(), parts.added.id_end());
    return otherwise < end ? otherwise : -1;
  };
  const TokenId from_prefix = parts.prefix.size() == 1 ? parts.prefix.front() : -1;
  parts.bos_id =
      id_of_role("bos_token", config.config_bos_id >= 0 ? config.config_bos_id : from_prefix);
  parts.eos_id = id_of_role("eos_token", config.config_eos_id);
}

}  // namespace lmtp::tokenizer

// vocab.json and merges.txt: GPT-2's own files, in the form Hugging Face keeps them; and the files
// beside them that say which tokens are special.
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json_file.h"
#include "model_builder.h"
#include "tokenizer_files.h"

namespace lmtp::tokenizer {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::string_view kGpt2Special = "<|endoftext|>";
constexpr const char* kSpecialKeys[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                        "sep_token", "cls_token", "mask_token"};

// A token is written as "text" or as {"content": "text", ...}.
std::string_view token_content(const element& value) {
  std::string_view text;
  if (value.get_string().get(text) == simdjson::SUCCESS) return text;
  object token;
  if (value.get_object().get(token) == simdjson::SUCCESS) return string_or(token, "content", "");
  return "";
}

std::string_view content_of(const object& config, const char* key) {
  element value;
  if (config[key].get(value) != simdjson::SUCCESS) return "";
  return token_content(value);
}

Result<void> read_vocab_json(const std::string& path, ModelBuilder& builder) {
  JsonFile file;
  const auto root = file.read(path);
  if (!root) return root.error();
  const std::size_t num_tokens = root->size();
  builder.reserve(num_tokens + 1, num_tokens * 8, num_tokens);
  for (const auto [spelling, value] : *root) {
    std::int64_t id = 0;
    if (value.get_int64().get(id) != simdjson::SUCCESS) {
      return Error{path + ": the id of '" + std::string(spelling) + "' is not a number"};
    }
    if (auto added = builder.add_token(spelling, id); !added) {
      return Error{path + ": " + added.error().message};
    }
  }
  return {};
}

Result<void> read_merges_txt(const std::string& path, ModelBuilder& builder) {
  const auto text = read_text_file(path);
  if (!text) return text.error();
  if (!simdjson::validate_utf8(text->data(), text->size())) return Error{path + ": not UTF-8"};
  std::size_t line_number = 0;
  for (std::size_t pos = 0; pos < text->size();) {
    const std::size_t end = std::min(text->find('\n', pos), text->size());
    std::string_view line = std::string_view(*text).substr(pos, end - pos);
    pos = end + 1;
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    if (auto added = builder.add_merge(line); !added) {
      return Error{path + ", line " + std::to_string(line_number) + ": " + added.error().message};
    }
  }
  return {};
}

// A special token by name. Those that no file gives an id to and the vocabulary does not know are
// left out: there is nothing they could become.
Result<void> add_special(std::string_view content, ModelBuilder& builder) {
  if (content.empty()) return {};
  for (const AddedToken& token : builder.model().added_tokens) {
    if (token.content == content) return {};
  }
  AddedToken token;
  token.id = builder.find(content);
  if (token.id < 0) return {};
  token.content = content;
  token.special = true;
  return builder.add_added_token(std::move(token));
}

// added_tokens_decoder: {"50256": {"content": ..., "special": ..., "lstrip": ...}, ...}
Result<void> read_added_tokens_decoder(const object& config, ModelBuilder& builder) {
  object decoder;
  if (config["added_tokens_decoder"].get_object().get(decoder) != simdjson::SUCCESS) return {};
  for (const auto [key, value] : decoder) {
    object entry;
    AddedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() ||
        value.get_object().get(entry) != simdjson::SUCCESS) {
      return Error{"'added_tokens_decoder': '" + std::string(key) + "' is not an id with a token"};
    }
    token.content = string_or(entry, "content", "");
    token.special = bool_or(entry, "special", false);
    token.normalized = bool_or(entry, "normalized", !token.special);
    token.single_word = bool_or(entry, "single_word", false);
    token.lstrip = bool_or(entry, "lstrip", false);
    token.rstrip = bool_or(entry, "rstrip", false);
    if (auto added = builder.add_added_token(std::move(token)); !added) return added;
  }
  return {};
}

Result<void> read_specials(const object& config, ModelBuilder& builder) {
  if (auto read = read_added_tokens_decoder(config, builder); !read) return read;
  for (const char* key : kSpecialKeys) {
    if (auto added = add_special(content_of(config, key), builder); !added) return added;
  }
  array more;
  if (config["additional_special_tokens"].get_array().get(more) == simdjson::SUCCESS) {
    for (const element item : more) {
      if (auto added = add_special(token_content(item), builder); !added) return added;
    }
  }
  builder.model().add_prefix_space = bool_or(config, "add_prefix_space", false);
  return {};
}

// added_tokens.json: {"<extra>": 50257, ...}
Result<void> read_added_tokens_json(const std::string& path, ModelBuilder& builder) {
  if (!file_exists(path)) return {};
  JsonFile file;
  const auto root = file.read(path);
  if (!root) return root.error();
  for (const auto [content, value] : *root) {
    std::int64_t id = 0;
    if (value.get_int64().get(id) != simdjson::SUCCESS || id < 0 || id > kTokenIdMax) {
      return Error{path + ": the id of '" + std::string(content) + "' is not allowed"};
    }
    AddedToken token;
    token.id = static_cast<TokenId>(id);
    token.content = content;
    token.normalized = true;
    if (auto added = builder.add_added_token(std::move(token)); !added) {
      return Error{path + ": " + added.error().message};
    }
  }
  return {};
}

Result<void> read_all_specials(const std::string& folder, ModelBuilder& builder) {
  if (auto read = read_added_tokens_json(folder + "/added_tokens.json", builder); !read) {
    return read;
  }
  for (const char* name : {"/special_tokens_map.json", "/tokenizer_config.json"}) {
    if (!file_exists(folder + name)) continue;
    JsonFile file;
    const auto root = file.read(folder + name);
    if (!root) return root.error();
    if (auto read = read_specials(*root, builder); !read) {
      return Error{folder + name + ": " + read.error().message};
    }
  }
  // GPT2Tokenizer's default for bos, eos and unk.
  return add_special(kGpt2Special, builder);
}

// config.json gives ids instead of texts; a list begins with the one that counts.
TokenId id_of(const object& config, const char* key, int vocab_size) {
  element value;
  std::int64_t id = -1;
  array several;
  if (config[key].get(value) != simdjson::SUCCESS) return -1;
  if (value.get_array().get(several) == simdjson::SUCCESS) {
    if (several.size() == 0 || several.at(0).get_int64().get(id) != simdjson::SUCCESS) return -1;
  } else if (value.get_int64().get(id) != simdjson::SUCCESS) {
    return -1;
  }
  return id >= 0 && id < vocab_size ? static_cast<TokenId>(id) : -1;
}

void take_ids(const object& config, bool by_id, ByteBpeModel& model) {
  const auto lookup = [&](const char* name_key, const char* id_key) {
    if (by_id) return id_of(config, id_key, model.vocab.size());
    const std::string_view content = content_of(config, name_key);
    return content.empty() ? -1 : find_spelling(model, content);
  };
  if (model.bos_id < 0) model.bos_id = lookup("bos_token", "bos_token_id");
  if (model.eos_id < 0) model.eos_id = lookup("eos_token", "eos_token_id");
}

}  // namespace

Result<ByteBpeModel> read_vocab_and_merges(const std::string& folder) {
  ModelBuilder builder;
  if (auto read = read_vocab_json(folder + "/vocab.json", builder); !read) return read.error();
  if (auto read = read_merges_txt(folder + "/merges.txt", builder); !read) return read.error();
  if (auto read = read_all_specials(folder, builder); !read) return read.error();
  return std::move(builder.model());
}

Result<void> read_special_ids(const std::string& folder, ByteBpeModel& model) {
  struct Source {
    const char* name;
    bool by_id;
  };
  for (const Source source :
       {Source{"/tokenizer_config.json", false}, Source{"/special_tokens_map.json", false},
        Source{"/config.json", true}}) {
    if (!file_exists(folder + source.name)) continue;
    JsonFile file;
    const auto root = file.read(folder + source.name);
    if (!root) return root.error();
    take_ids(*root, source.by_id, model);
  }
  return {};
}

}  // namespace lmtp::tokenizer

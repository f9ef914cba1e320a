// tokenizer.json: what Hugging Face `tokenizers` writes.
#include <string>
#include <string_view>
#include <utility>

#include "json_file.h"
#include "model_builder.h"
#include "tokenizer_files.h"

namespace lmtp::tokenizer {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

Error unsupported(const std::string& what) { return Error{what + "; " + kSupportedKinds}; }

bool is_null_or_missing(const object& parent, const char* key) {
  element value;
  return parent[key].get(value) != simdjson::SUCCESS || value.is_null();
}

// The `type` of a part, or "none" where the part is null or missing.
std::string_view type_of(const object& parent, const char* key) {
  object part;
  if (parent[key].get_object().get(part) != simdjson::SUCCESS) return "none";
  return string_or(part, "type", "of no type");
}

Result<void> check_parts(const object& root) {
  const auto quoted = [](std::string_view name) { return "'" + std::string(name) + "'"; };
  if (!is_null_or_missing(root, "normalizer")) {
    return unsupported("the normalizer is " + quoted(type_of(root, "normalizer")));
  }
  if (const auto type = type_of(root, "pre_tokenizer"); type != "ByteLevel") {
    return unsupported("the pre_tokenizer is " + quoted(type));
  }
  if (const auto type = type_of(root, "decoder"); type != "ByteLevel") {
    return unsupported("the decoder is " + quoted(type));
  }
  object model;
  if (root["model"].get_object().get(model) != simdjson::SUCCESS) {
    return Error{"'model' is missing"};
  }
  // Files of old versions have no type.
  if (const auto type = string_or(model, "type", "BPE"); type != "BPE") {
    return unsupported("the model is " + quoted(type));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_or(model, key, "").empty()) {
      return unsupported("the model has a " + std::string(key));
    }
  }
  if (bool_or(model, "byte_fallback", false)) return unsupported("the model has byte_fallback");
  return {};
}

Result<void> read_vocab(const object& model, ModelBuilder& builder) {
  object vocab;
  if (model["vocab"].get_object().get(vocab) != simdjson::SUCCESS) {
    return Error{"'model.vocab' is missing or not an object"};
  }
  for (const auto [spelling, value] : vocab) {
    std::int64_t id = 0;
    if (value.get_int64().get(id) != simdjson::SUCCESS) {
      return Error{"'model.vocab': the id of '" + std::string(spelling) + "' is not a number"};
    }
    if (auto added = builder.add_token(spelling, id); !added) return added;
  }
  return {};
}

// A merge is "a b" (older files) or ["a", "b"] (newer ones).
Result<void> read_merge(const element& merge, ModelBuilder& builder) {
  std::string_view left;
  std::string_view right;
  if (merge.get_string().get(left) == simdjson::SUCCESS) return builder.add_merge(left);
  array pair;
  if (merge.get_array().get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair.at(0).get_string().get(left) != simdjson::SUCCESS ||
      pair.at(1).get_string().get(right) != simdjson::SUCCESS) {
    return Error{"'model.merges': neither \"a b\" nor [\"a\", \"b\"]"};
  }
  return builder.add_merge(left, right);
}

Result<void> read_model(const object& model, ModelBuilder& builder) {
  array merges;
  if (model["merges"].get_array().get(merges) != simdjson::SUCCESS) {
    return Error{"'model.merges' is missing or not an array"};
  }
  object vocab;
  const bool has_vocab = model["vocab"].get_object().get(vocab) == simdjson::SUCCESS;
  const std::size_t num_tokens = has_vocab ? vocab.size() : 0;
  builder.reserve(num_tokens + 1, num_tokens * 8, merges.size());
  if (auto read = read_vocab(model, builder); !read) return read;
  for (const element merge : merges) {
    if (auto read = read_merge(merge, builder); !read) return read;
  }
  ByteBpeModel& built = builder.model();
  built.fuse_unk = bool_or(model, "fuse_unk", false);
  built.ignore_merges = bool_or(model, "ignore_merges", false);
  if (const auto unk = string_or(model, "unk_token", ""); !unk.empty()) {
    built.unk_id = builder.find(unk);
  }
  return {};
}

Result<void> read_added_tokens(const object& root, ModelBuilder& builder) {
  array added;
  if (root["added_tokens"].get_array().get(added) != simdjson::SUCCESS) return {};
  for (const element item : added) {
    object entry;
    std::int64_t id = 0;
    std::string_view content;
    if (item.get_object().get(entry) != simdjson::SUCCESS ||
        entry["id"].get_int64().get(id) != simdjson::SUCCESS ||
        entry["content"].get_string().get(content) != simdjson::SUCCESS) {
      return Error{"'added_tokens': an entry has no id or no content"};
    }
    AddedToken token;
    token.id = id < 0 || id > kTokenIdMax ? -1 : static_cast<TokenId>(id);
    token.content = content;
    token.special = bool_or(entry, "special", false);
    token.normalized = bool_or(entry, "normalized", !token.special);
    token.single_word = bool_or(entry, "single_word", false);
    token.lstrip = bool_or(entry, "lstrip", false);
    token.rstrip = bool_or(entry, "rstrip", false);
    if (auto taken = builder.add_added_token(std::move(token)); !taken) return taken;
  }
  return {};
}

Result<void> read_root(const object& root, ModelBuilder& builder) {
  if (auto supported = check_parts(root); !supported) return supported;
  object model;
  object pre_tokenizer;
  if (root["model"].get_object().get(model) != simdjson::SUCCESS ||
      root["pre_tokenizer"].get_object().get(pre_tokenizer) != simdjson::SUCCESS) {
    return Error{"'model' or 'pre_tokenizer' is missing"};
  }
  if (auto read = read_model(model, builder); !read) return read;
  builder.model().add_prefix_space = bool_or(pre_tokenizer, "add_prefix_space", true);
  builder.model().splits_words = bool_or(pre_tokenizer, "use_regex", true);
  return read_added_tokens(root, builder);
}

}  // namespace

Result<ByteBpeModel> read_tokenizer_json(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  JsonFile file;
  const auto root = file.read(path);
  if (!root) return root.error();
  ModelBuilder builder;
  if (auto read = read_root(*root, builder); !read) {
    return Error{path + ": " + read.error().message};
  }
  return std::move(builder.model());
}

}  // namespace lmtp::tokenizer

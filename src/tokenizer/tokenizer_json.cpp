// tokenizer.json: what Hugging Face `tokenizers` writes.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bpe.h"
#include "json_file.h"
#include "json_parts.h"
#include "tokenizer_files.h"
#include "unigram.h"
#include "word_level.h"

namespace lmtp::tokenizer {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

Result<void> read_vocab(const object& vocab, BpeBuilder& builder) {
  for (const auto [spelling, value] : vocab) {
    std::int64_t id = 0;
    if (value.get_int64().get(id) != simdjson::SUCCESS) {
      return Error{ErrorCode::kInvalid,
                   "'model.vocab': the id of '" + std::string(spelling) + "' is not a number"};
    }
    if (auto added = builder.add_token(spelling, id); !added) return added;
  }
  return {};
}

// A merge is "a b" (older files) or ["a", "b"] (newer ones).
Result<void> read_merge(const element& merge, BpeBuilder& builder) {
  std::string_view left;
  std::string_view right;
  if (merge.get_string().get(left) == simdjson::SUCCESS) return builder.add_merge(left);
  array pair;
  if (merge.get_array().get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair.at(0).get_string().get(left) != simdjson::SUCCESS ||
      pair.at(1).get_string().get(right) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "'model.merges': neither \"a b\" nor [\"a\", \"b\"]"};
  }
  return builder.add_merge(left, right);
}

Result<void> check_bpe(const object& model) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_or(model, key, "").empty()) {
      return unsupported("the model has a " + std::string(key));
    }
  }
  double dropout = 0.0;
  if (model["dropout"].get_double().get(dropout) == simdjson::SUCCESS && dropout != 0.0) {
    return unsupported("the model has dropout, with which ids are drawn by chance");
  }
  return {};
}

Result<std::unique_ptr<WordModel>> read_bpe(const object& model, bool byte_level) {
  if (auto checked = check_bpe(model); !checked) return checked.error();
  object vocab;
  array merges;
  if (model["vocab"].get_object().get(vocab) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "'model.vocab' is missing or not an object"};
  }
  if (model["merges"].get_array().get(merges) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "'model.merges' is missing or not an array"};
  }
  Bpe::Options options;
  options.byte_level = byte_level;
  options.unk_token = string_or(model, "unk_token", "");
  options.fuse_unk = bool_or(model, "fuse_unk", false);
  options.byte_fallback = bool_or(model, "byte_fallback", false);
  options.ignore_merges = bool_or(model, "ignore_merges", false);
  BpeBuilder builder(std::move(options));
  builder.reserve(vocab.size() + 1, vocab.size() * 8, merges.size());
  if (auto read = read_vocab(vocab, builder); !read) return read.error();
  for (const element merge : merges) {
    if (auto read = read_merge(merge, builder); !read) return read.error();
  }
  return std::unique_ptr<WordModel>(builder.take());
}

Result<std::unique_ptr<WordModel>> read_unigram(const object& model) {
  array vocab;
  if (model["vocab"].get_array().get(vocab) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "'model.vocab' is missing or not an array"};
  }
  std::vector<Unigram::Piece> pieces;
  pieces.reserve(vocab.size());
  for (const element item : vocab) {
    array pair;
    std::string_view text;
    double score = 0.0;
    if (item.get_array().get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
        pair.at(0).get_string().get(text) != simdjson::SUCCESS ||
        pair.at(1).get_double().get(score) != simdjson::SUCCESS) {
      return Error{ErrorCode::kInvalid, "'model.vocab': an entry is not [\"text\", score]"};
    }
    pieces.push_back({std::string(text), score});
  }
  std::int64_t unk_id = -1;
  if (model["unk_id"].get_int64().get(unk_id) != simdjson::SUCCESS) unk_id = -1;
  if (unk_id > kTokenIdMax) return Error{ErrorCode::kInvalid, "'model.unk_id' is too high"};
  auto made = Unigram::make(std::move(pieces), static_cast<TokenId>(unk_id),
                            bool_or(model, "byte_fallback", false));
  if (!made) return Error{made.error().code, "'model': " + made.error().message};
  return std::unique_ptr<WordModel>(std::move(*made));
}

Result<std::unique_ptr<WordModel>> read_word_level(const object& model) {
  object vocab;
  if (model["vocab"].get_object().get(vocab) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "'model.vocab' is missing or not an object"};
  }
  auto made = std::make_unique<WordLevel>();
  for (const auto [text, value] : vocab) {
    std::int64_t id = -1;
    if (value.get_int64().get(id) != simdjson::SUCCESS || id < 0 || id > kTokenIdMax) {
      return Error{ErrorCode::kInvalid,
                   "'model.vocab': the id of '" + std::string(text) + "' is not allowed"};
    }
    made->add_token(text, static_cast<TokenId>(id));
  }
  const std::string_view unknown = string_or(model, "unk_token", "<unk>");
  if (!made->set_unknown(unknown)) {
    return Error{ErrorCode::kInvalid,
                 "'model.unk_token': '" + std::string(unknown) + "' is not in the vocabulary"};
  }
  return std::unique_ptr<WordModel>(std::move(made));
}

Result<std::unique_ptr<WordModel>> read_model(const object& root, bool byte_level) {
  object model;
  if (root["model"].get_object().get(model) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "'model' is missing"};
  }
  // Files of old versions have no type.
  const std::string_view type = string_or(model, "type", "BPE");
  if (type == "BPE") return read_bpe(model, byte_level);
  if (type == "Unigram") return read_unigram(model);
  if (type == "WordLevel") return read_word_level(model);
  return unsupported("the model is '" + std::string(type) + "'");
}

// Whether the model may work on bytes instead of GPT-2's spelling of them: if every word is spelt
// when it reaches the model, `steps` are changed to convert it to bytes at the end. The library
// works on the spelling; bytes are faster, also in decoding.
bool make_bytes_of_words(const object& root, const std::vector<NormalizerStep>& normalizer,
                         const std::vector<DecoderStep>& decoder,
                         std::vector<PreTokenizerStep>& steps) {
  using Kind = PreTokenizerStep::Kind;
  object model;
  if (root["model"].get_object().get(model) != simdjson::SUCCESS ||
      string_or(model, "type", "BPE") != "BPE" || bool_or(model, "byte_fallback", false) ||
      decoder.size() != 1 || decoder[0].kind != DecoderStep::Kind::kBytes) {
    return false;
  }
  std::size_t num_behind = 0;  // steps after the last kSpellBytes
  while (num_behind < steps.size() &&
         steps[steps.size() - 1 - num_behind].kind != Kind::kSpellBytes) {
    const Kind kind = steps[steps.size() - 1 - num_behind].kind;
    if (kind != Kind::kSplit && kind != Kind::kGpt2Words) return false;
    ++num_behind;
  }
  const bool spelt_before =
      !normalizer.empty() && normalizer.back().kind == NormalizerStep::Kind::kSpellBytes;
  if (num_behind == steps.size() && !spelt_before) return false;
  if (num_behind == 0 && !steps.empty()) {
    steps.pop_back();
  } else {
    steps.emplace_back().kind = Kind::kUnspellBytes;
  }
  return true;
}

Result<std::vector<AddedToken>> read_added_tokens(const object& root) {
  std::vector<AddedToken> tokens;
  array added;
  if (root["added_tokens"].get_array().get(added) != simdjson::SUCCESS) return tokens;
  for (const element item : added) {
    object entry;
    std::int64_t id = 0;
    std::string_view content;
    if (item.get_object().get(entry) != simdjson::SUCCESS ||
        entry["id"].get_int64().get(id) != simdjson::SUCCESS ||
        entry["content"].get_string().get(content) != simdjson::SUCCESS) {
      return Error{ErrorCode::kInvalid, "'added_tokens': an entry has no id or no content"};
    }
    if (id < 0 || id > kTokenIdMax) {
      return Error{ErrorCode::kInvalid, "added token '" + std::string(content) + "' has id " +
                                            std::to_string(id) + "; allowed are 0 to " +
                                            std::to_string(kTokenIdMax)};
    }
    AddedToken token;
    token.content = content;
    token.special = bool_or(entry, "special", false);
    token.normalized = bool_or(entry, "normalized", !token.special);
    token.single_word = bool_or(entry, "single_word", false);
    token.lstrip = bool_or(entry, "lstrip", false);
    token.rstrip = bool_or(entry, "rstrip", false);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// transformers' own setting overrides the file's.
void override_prefix_space(const FolderConfig& config, PreTokenizerParts& parts) {
  if (!parts.byte_level_alone || !config.present) return;
  std::erase_if(parts.steps, [](const PreTokenizerStep& step) {
    return step.kind == PreTokenizerStep::Kind::kPrepend;
  });
  if (config.add_prefix_space.value_or(false)) {
    parts.steps.insert(parts.steps.begin(), prefix_space_step());
  }
}

Result<TokenizerParts> read_root(const object& root, const FolderConfig& config) {
  TokenizerParts parts;
  auto normalizer = read_normalizer(root);
  if (!normalizer) return normalizer.error();
  auto pre_tokenizer = read_pre_tokenizer(root);
  if (!pre_tokenizer) return pre_tokenizer.error();
  override_prefix_space(config, *pre_tokenizer);
  auto decoder = read_decoder(root);
  if (!decoder) return decoder.error();
  parts.byte_level = make_bytes_of_words(root, *normalizer, *decoder, pre_tokenizer->steps);
  auto model = read_model(root, parts.byte_level);
  if (!model) return model.error();
  parts.model = std::move(*model);
  parts.pre_tokenizer = PreTokenizer(std::move(pre_tokenizer->steps));
  parts.normalizer = Normalizer(std::move(*normalizer));
  if (!parts.byte_level) parts.decoder = Decoder(std::move(*decoder));
  const auto added = read_added_tokens(root);
  if (!added) return added.error();
  parts.added.add(*added, *parts.model);
  const auto id_of = [&](const TemplateToken& token) {
    const bool good = token.id >= 0 && token.id <= kTokenIdMax;
    return good ? static_cast<TokenId>(token.id) : parts.added.find(token.content, *parts.model);
  };
  const TemplateTokens around = read_template(root);
  for (const TemplateToken& token : around.prefix) parts.prefix.push_back(id_of(token));
  for (const TemplateToken& token : around.suffix) {
    if (const TokenId id = id_of(token); id >= 0) parts.suffix.push_back(id);
  }
  return parts;
}

}  // namespace

Result<TokenizerParts> read_tokenizer_json(const std::string& path, const FolderConfig& config) {
  JsonFile file;
  const auto root = file.read(path);
  if (!root) return root.error();
  auto parts = read_root(*root, config);
  if (!parts) return Error{parts.error().code, path + ": " + parts.error().message};
  return parts;
}

}  // namespace lmtp::tokenizer

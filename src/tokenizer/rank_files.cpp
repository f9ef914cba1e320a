// Files of tokens with ranks, from which merges are derived: tekken.json, and tiktoken's.
//
// References: transformers 5, integrations/mistral/tokenizer.py and convert_slow_tokenizer.py,
// TikTokenConverter; mistral-common, tokens/tokenizers/tekken.py (names of special tokens).
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base64.h"
#include "bpe.h"
#include "byte_alphabet.h"
#include "json_file.h"
#include "json_parts.h"
#include "known_patterns.h"
#include "tokenizer_files.h"

namespace lmtp::tokenizer {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::size_t kTokenBytesMax = 512;  // all splits of a token are tried
constexpr TokenId kIdsWithoutTokenMax = 1 << 16;
// The special tokens of early versions of tekken.json, which do not list any.
constexpr std::string_view kFirstTekkenSpecials[] = {"<unk>",
                                                     "<s>",
                                                     "</s>",
                                                     "[INST]",
                                                     "[/INST]",
                                                     "[AVAILABLE_TOOLS]",
                                                     "[/AVAILABLE_TOOLS]",
                                                     "[TOOL_RESULTS]",
                                                     "[/TOOL_RESULTS]",
                                                     "[TOOL_CALLS]",
                                                     "[IMG]",
                                                     "<pad>",
                                                     "[IMG_BREAK]",
                                                     "[IMG_END]",
                                                     "[PREFIX]",
                                                     "[MIDDLE]",
                                                     "[SUFFIX]",
                                                     "[SYSTEM_PROMPT]",
                                                     "[/SYSTEM_PROMPT]",
                                                     "[TOOL_CONTENT]"};

// The classes of which transformers reads tiktoken's files with Llama 3's pattern, and those that
// are guessed where a folder names none. Others' (Qwen 1, Kimi, DBRX) have patterns in code of
// their own.
constexpr std::string_view kTiktokenClasses[] = {"LlamaTokenizer", "PreTrainedTokenizer",
                                                 "TokenizersBackend", "GPT2Tokenizer", ""};

std::string spelt(std::string_view bytes) {
  std::string spelling;
  append_spelling(bytes, spelling);
  return spelling;
}

// A BPE model of tokens by rank, with ids from `first_id` on, and of `specials`, with ids from 0.
// It has a merge for each split of a token into two tokens, ordered by the token's rank, then by
// those of its parts.
Result<std::unique_ptr<WordModel>> make_ranked_bpe(const std::vector<std::string>& tokens,
                                                   std::size_t first_id,
                                                   const std::vector<std::string>& specials) {
  Bpe::Options options;
  options.byte_level = true;
  options.ignore_merges = true;
  BpeBuilder builder(std::move(options));
  builder.reserve(tokens.size() + specials.size(), tokens.size() * 8, tokens.size() * 4);
  std::unordered_map<std::string_view, std::size_t> ranks;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    ranks.insert_or_assign(tokens[rank], rank);
    const auto id = static_cast<std::int64_t>(first_id + rank);
    if (auto added = builder.add_token(spelt(tokens[rank]), id); !added) return added.error();
  }
  for (std::size_t id = 0; id < specials.size(); ++id) {
    const auto added = builder.add_token(specials[id], static_cast<std::int64_t>(id));
    if (!added) return added.error();
  }
  std::vector<std::tuple<std::size_t, std::size_t, std::size_t>> ways;  // ranks, bytes of the left
  for (const std::string& token : tokens) {
    ways.clear();
    const std::string_view bytes = token;
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ranks.find(bytes.substr(0, cut));
      if (left == ranks.end()) continue;
      const auto right = ranks.find(bytes.substr(cut));
      if (right != ranks.end()) ways.emplace_back(left->second, right->second, cut);
    }
    std::sort(ways.begin(), ways.end());
    for (const auto& [left, right, cut] : ways) {
      const auto added = builder.add_merge(spelt(bytes.substr(0, cut)), spelt(bytes.substr(cut)));
      if (!added) return added.error();
    }
  }
  return std::unique_ptr<WordModel>(builder.take());
}

Result<TokenizerParts> make_parts(std::string_view pattern, std::unique_ptr<WordModel> model) {
  auto split = SplitPattern::regex(pattern);
  if (!split) return split.error();
  TokenizerParts parts;
  parts.model = std::move(model);
  parts.byte_level = true;
  parts.from_ranks = true;
  std::vector<PreTokenizerStep> steps(1);
  steps[0].kind = PreTokenizerStep::Kind::kSplit;
  steps[0].pattern = std::move(*split);
  parts.pre_tokenizer = PreTokenizer(std::move(steps));
  return parts;
}

AddedToken special_token(std::string_view content) {
  AddedToken token;
  token.content = content;
  token.special = true;
  return token;
}

// Names by rank, filled up to `num_specials` with <SPECIAL_12> and the like.
Result<std::vector<std::string>> read_tekken_specials(const object& root,
                                                      std::optional<std::size_t> num_specials) {
  std::vector<std::string> names;
  array listed;
  if (root["special_tokens"].get_array().get(listed) != simdjson::SUCCESS) {
    names.assign(std::begin(kFirstTekkenSpecials), std::end(kFirstTekkenSpecials));
  } else {
    names.resize(listed.size());
    for (const element item : listed) {
      std::uint64_t rank = 0;
      std::string_view text;
      if (item["rank"].get_uint64().get(rank) != simdjson::SUCCESS || rank >= names.size() ||
          item["token_str"].get_string().get(text) != simdjson::SUCCESS || text.empty() ||
          !names[rank].empty()) {
        return Error{ErrorCode::kInvalid,
                     "'special_tokens': an entry has no rank of its own or no token_str"};
      }
      names[rank] = text;
    }
  }
  if (num_specials && *num_specials > static_cast<std::size_t>(kIdsWithoutTokenMax)) {
    return Error{ErrorCode::kInvalid, "'config.default_num_special_tokens' is too high"};
  }
  while (num_specials && names.size() < *num_specials) {
    names.push_back("<SPECIAL_" + std::to_string(names.size()) + ">");
  }
  return names;
}

Result<TokenizerParts> read_tekken_root(const object& root) {
  object config;
  array vocab;
  std::string_view pattern;
  if (root["config"].get_object().get(config) != simdjson::SUCCESS ||
      config["pattern"].get_string().get(pattern) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "'config.pattern' is missing or not a string"};
  }
  if (root["vocab"].get_array().get(vocab) != simdjson::SUCCESS) {
    return Error{ErrorCode::kInvalid, "'vocab' is missing or not an array"};
  }
  const auto number = [&config](const char* key) -> std::optional<std::size_t> {
    std::uint64_t value = 0;
    if (config[key].get_uint64().get(value) != simdjson::SUCCESS) return std::nullopt;
    return value;
  };
  const auto specials = read_tekken_specials(root, number("default_num_special_tokens"));
  if (!specials) return specials.error();
  // Tokens beyond the vocabulary's size are not used.
  std::size_t num_tokens = vocab.size();
  if (const auto size = number("default_vocab_size")) {
    if (*size < specials->size()) {
      return Error{ErrorCode::kInvalid, "'config.default_vocab_size' is too low"};
    }
    num_tokens = std::min(num_tokens, *size - specials->size());
  }
  std::vector<std::string> tokens;
  for (const element item : vocab) {
    if (tokens.size() == num_tokens) break;
    std::int64_t rank = 0;  // if given
    if (item["rank"].get_int64().get(rank) == simdjson::SUCCESS &&
        rank != static_cast<std::int64_t>(tokens.size())) {
      return Error{ErrorCode::kInvalid, "'vocab', entry " + std::to_string(tokens.size()) +
                                            ": its 'rank' is not its place in the list"};
    }
    std::string_view text;
    const auto bytes = item["token_bytes"].get_string().get(text) == simdjson::SUCCESS
                           ? from_base64(text)
                           : std::nullopt;
    if (!bytes || bytes->empty() || bytes->size() > kTokenBytesMax) {
      return Error{ErrorCode::kInvalid, "'vocab', entry " + std::to_string(tokens.size()) +
                                            ": 'token_bytes' is not base64 of 1 to " +
                                            std::to_string(kTokenBytesMax) + " bytes"};
    }
    tokens.push_back(*bytes);
  }
  auto model = make_ranked_bpe(tokens, specials->size(), *specials);
  if (!model) return model.error();
  auto parts = make_parts(pattern, std::move(*model));
  if (!parts) return parts;
  std::vector<AddedToken> added;
  for (const std::string& name : *specials) added.push_back(special_token(name));
  parts->added.add(added, *parts->model);
  parts->bos_id = parts->added.find("<s>", *parts->model);
  if (parts->bos_id >= 0) parts->prefix = {parts->bos_id};
  return parts;
}

// "base64 rank" in each line.
Result<std::vector<std::string>> parse_tiktoken(std::string_view text) {
  std::vector<std::string> tokens;
  int number = 1;
  for (std::size_t pos = 0; pos < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', pos), text.size());
    std::string_view line = text.substr(pos, end - pos);
    pos = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = std::min(line.find(' '), line.size() - 1);
    const auto bytes = from_base64(line.substr(0, space));
    std::uint32_t rank = 0;
    const auto [rest, error] =
        std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
    if (!bytes || bytes->empty() || bytes->size() > kTokenBytesMax || error != std::errc() ||
        rest != line.data() + line.size() ||
        rank >= static_cast<std::uint32_t>(number + kIdsWithoutTokenMax)) {
      return Error{ErrorCode::kInvalid,
                   "line " + std::to_string(number) + " is not base64 and a rank"};
    }
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    tokens[rank] = *bytes;
  }
  if (tokens.empty()) return Error{ErrorCode::kInvalid, "no tokens"};
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    if (tokens[rank].empty()) {
      return Error{ErrorCode::kInvalid, "no token has the rank " + std::to_string(rank)};
    }
  }
  return tokens;
}

}  // namespace

Result<TokenizerParts> read_tekken(const std::string& path) {
  JsonFile file;
  const auto root = file.read(path);
  if (!root) return root.error();
  auto parts = read_tekken_root(*root);
  if (!parts) return Error{parts.error().code, path + ": " + parts.error().message};
  return parts;
}

bool looks_like_tiktoken(std::string_view text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  return end <= 2 * kTokenBytesMax && parse_tiktoken(text.substr(0, end)).ok();
}

Result<TokenizerParts> read_tiktoken(const std::string& path, const FolderConfig& config) {
  if (std::ranges::find(kTiktokenClasses, config.tokenizer_class) == std::end(kTiktokenClasses)) {
    return Error{ErrorCode::kInvalid,
                 path + ": has no pattern that splits texts, and that of the class '" +
                     config.tokenizer_class +
                     "' is not known: Llama 3's is used for files of LlamaTokenizer and of "
                     "PreTrainedTokenizerFast alone; convert it to a tokenizer.json"};
  }
  const auto text = read_text_file(path);
  if (!text) return text.error();
  const auto tokens = parse_tiktoken(*text);
  if (!tokens) return Error{tokens.error().code, path + ": " + tokens.error().message};
  auto model = make_ranked_bpe(*tokens, 0, {});
  if (!model) return Error{model.error().code, path + ": " + model.error().message};
  auto parts = make_parts(kLlama3Pattern, std::move(*model));
  if (!parts) return Error{parts.error().code, path + ": " + parts.error().message};
  // Configuration files assign ids to special tokens; the gaps are filled.
  TokenId last = -1;
  std::unordered_map<TokenId, std::string> names;
  for (const AddedToken& token : config.added) {
    last = std::max(last, token.id);
    names[token.id] = token.content;
  }
  const TokenId first = parts->model->id_end();
  if (last >= first + kIdsWithoutTokenMax) {
    return Error{ErrorCode::kInvalid, path + ": tokenizer_config.json adds a token with the id " +
                                          std::to_string(last) + ", far beyond the file's " +
                                          std::to_string(first) + " tokens"};
  }
  std::vector<AddedToken> added;
  for (TokenId id = first; id <= last; ++id) {
    const auto named = names.find(id);
    added.push_back(special_token(
        named != names.end() ? named->second : "<|reserved_token_" + std::to_string(id) + "|>"));
  }
  parts->added.add(added, *parts->model);
  return parts;
}

}  // namespace lmtp::tokenizer

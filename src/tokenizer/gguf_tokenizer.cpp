// The tokenizer of a GGUF file: byte-level BPE ("gpt2"), whose pre-tokenizer is known by its name,
// or sentencepiece's BPE with scores ("llama").
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bpe.h"
#include "known_patterns.h"
#include "lmtp/base/utf8.h"
#include "lmtp/gguf/gguf_file.h"
#include "tokenizer_files.h"

namespace lmtp::tokenizer {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";

// What comes before GPT-2's own words, or in the place of them.
constexpr std::string_view kDigitPattern = R"(\p{N})";
constexpr std::string_view kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kLineEnds = R"([\r\n])";
constexpr std::string_view kDeepseekLetters = R"(\s?\p{L}+)";
constexpr std::string_view kDeepseekPunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kEastAsian = R"([\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";

enum class Gpt2Words : std::uint8_t { kNone, kLast, kSecond };

// A pre-tokenizer by its names in tokenizer.ggml.pre.
struct KnownPre {
  std::string_view names;                   // with a space on both sides of each
  std::string_view patterns[5] = {};        // in their order
  Gpt2Words gpt2_words = Gpt2Words::kNone;  // their place among the patterns
  bool ignore_merges = false;
  bool adds_bos = false;  // where the file does not say
  bool is_nfc = false;    // the text is normalized, as by the published tokenizer
};

constexpr KnownPre kPres[] = {
    {.names = " gpt-2 phi-2 mpt olmo jais exaone4 ", .gpt2_words = Gpt2Words::kLast},
    {.names = " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ",
     .patterns = {kLlama3Pattern},
     .ignore_merges = true,
     .adds_bos = true},
    {.names = " dbrx smaug-bpe ", .patterns = {kLlama3Pattern}},
    {.names = " qwen2 deepseek-r1-qwen megrez stablelm2 ",
     .patterns = {kQwen2Pattern},
     .is_nfc = true},
    {.names = " tekken ", .patterns = {kTekkenPattern}, .ignore_merges = true, .adds_bos = true},
    {.names = " gpt-4o llama4 ", .patterns = {kGpt4oPattern}},
    {.names = " smollm starcoder refact command-r codeshell exaone minerva-7b ",
     .patterns = {kDigitPattern},
     .gpt2_words = Gpt2Words::kLast},
    {.names = " deepseek-coder ",
     .patterns = {kLineEnds, kDeepseekLetters, kDeepseekPunctuation, kEastAsian, kDigitPattern}},
    {.names = " falcon ",
     .patterns = {kFalconPunctuation, kThreeDigits},
     .gpt2_words = Gpt2Words::kSecond},
};

Error broken(const gguf::GgufFile& file, const std::string& what) {
  return Error{ErrorCode::kInvalid, file.origin() + ": " + what};
}

struct VocabEntry {
  std::string_view text;
  PieceType type = PieceType::kNormal;
  float score = 0.0F;
};

Result<std::vector<VocabEntry>> read_entries(const gguf::GgufFile& file) {
  std::optional<Error> mistyped;
  const auto tokens = file.texts(kTokens, mistyped);
  const auto types = file.numbers(kTypes, mistyped);
  const auto scores = file.numbers(kScores, mistyped);
  if (mistyped) return *mistyped;
  if (!tokens || tokens->empty() || tokens->size() > kTokenIdMax) {
    return broken(file, "'" + std::string(kTokens) + "' is missing, or has not up to " +
                            std::to_string(kTokenIdMax) + " tokens");
  }
  for (const auto& [key, list] : {std::pair(kTypes, &types), std::pair(kScores, &scores)}) {
    if (*list && (*list)->size() != tokens->size()) {
      return broken(file, "'" + std::string(key) + "' has " + std::to_string((*list)->size()) +
                              " entries, and there are " + std::to_string(tokens->size()) +
                              " tokens");
    }
  }
  std::vector<VocabEntry> entries;
  entries.reserve(tokens->size());
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    VocabEntry entry{(*tokens)[id]};
    if (types && (*types)[id] >= 1 && (*types)[id] <= 6) {
      entry.type = static_cast<PieceType>(static_cast<int>((*types)[id]));
    }
    if (scores) entry.score = static_cast<float>((*scores)[id]);
    if (!is_utf8(entry.text) || !std::isfinite(entry.score)) {
      return broken(file, "token " + std::to_string(id) +
                              ": its text is not UTF-8, or its score no finite number");
    }
    entries.push_back(entry);
  }
  return entries;
}

// -1: none.
TokenId stored_id(const gguf::GgufFile& file, std::string_view key, std::size_t num_tokens,
                  TokenId fallback, std::optional<Error>& mistyped) {
  const std::int64_t id = file.integer(key, mistyped).value_or(fallback);
  return id >= 0 && static_cast<std::size_t>(id) < num_tokens ? static_cast<TokenId>(id) : -1;
}

Result<void> set_ends(const gguf::GgufFile& file, std::size_t num_tokens, bool is_llama,
                      bool adds_bos, TokenizerParts& parts) {
  std::optional<Error> mistyped;
  const auto id_of = [&](std::string_view key, TokenId fallback) {
    return stored_id(file, key, num_tokens, is_llama ? fallback : -1, mistyped);
  };
  parts.bos_id = id_of("tokenizer.ggml.bos_token_id", 1);
  parts.eos_id = id_of("tokenizer.ggml.eos_token_id", 2);
  adds_bos = file.boolean("tokenizer.ggml.add_bos_token", mistyped).value_or(adds_bos);
  if (mistyped) return *mistyped;
  if (adds_bos && parts.bos_id >= 0) parts.prefix.push_back(parts.bos_id);
  return {};
}

// Phi 3's special tokens take the white space behind them, which no key says (as in llama.cpp).
bool takes_space_behind(std::optional<std::string_view> architecture, std::string_view text) {
  return architecture == "phi3" && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
}

Result<void> add_tokens(const gguf::GgufFile& file, const std::vector<VocabEntry>& entries,
                        TokenizerParts& parts) {
  std::optional<Error> mistyped;
  const auto architecture = file.text("general.architecture", mistyped);
  if (mistyped) return *mistyped;
  std::vector<AddedToken> added;
  for (const VocabEntry& entry : entries) {
    const bool is_special = entry.type == PieceType::kControl || entry.type == PieceType::kUnknown;
    if ((!is_special && entry.type != PieceType::kUserDefined) || entry.text.empty()) continue;
    AddedToken token;
    token.content = entry.text;
    token.special = is_special;
    token.rstrip = takes_space_behind(architecture, entry.text);
    added.push_back(std::move(token));
  }
  parts.added.add(added, *parts.model);
  return {};
}

Result<PreTokenizer> make_pre_tokenizer(const KnownPre& known) {
  using Kind = PreTokenizerStep::Kind;
  std::vector<PreTokenizerStep> steps;
  for (const std::string_view text : known.patterns) {
    if (text.empty()) break;
    auto pattern = SplitPattern::regex(text);
    if (!pattern) return pattern.error();
    PreTokenizerStep& step = steps.emplace_back();
    step.kind = Kind::kSplit;
    step.pattern = std::move(*pattern);
  }
  if (known.gpt2_words == Gpt2Words::kLast) steps.emplace_back().kind = Kind::kGpt2Words;
  if (known.gpt2_words == Gpt2Words::kSecond) {
    steps.insert(steps.begin() + 1, PreTokenizerStep{})->kind = Kind::kGpt2Words;
  }
  return PreTokenizer(std::move(steps));
}

Result<const KnownPre*> find_pre(const gguf::GgufFile& file) {
  std::optional<Error> mistyped;
  const auto name = file.text("tokenizer.ggml.pre", mistyped);
  if (mistyped) return *mistyped;
  std::string all;
  for (const KnownPre& known : kPres) {
    if (name && name->find(' ') == std::string_view::npos &&
        known.names.find(" " + std::string(*name) + " ") != std::string_view::npos) {
      return &known;
    }
    all += known.names.substr(0, known.names.size() - 1);
  }
  return broken(file, "tokenizer.ggml.pre: " +
                          (name ? "'" + std::string(name->substr(0, 64)) + "' is not known"
                                : std::string("is missing, as in files of old converters; convert "
                                              "the model again")) +
                          "; known are" + all);
}

Result<TokenizerParts> byte_level_parts(const gguf::GgufFile& file,
                                        const std::vector<VocabEntry>& entries) {
  const auto known = find_pre(file);
  if (!known) return known.error();
  std::optional<Error> mistyped;
  const auto merges = file.texts(kMerges, mistyped);
  if (mistyped) return *mistyped;
  if (!merges) return broken(file, "'" + std::string(kMerges) + "' is missing");
  Bpe::Options options;
  options.byte_level = true;
  options.ignore_merges = (*known)->ignore_merges;
  BpeBuilder builder(std::move(options));
  builder.reserve(entries.size() + 1, entries.size() * 8, merges->size());
  for (std::size_t id = 0; id < entries.size(); ++id) {
    const auto added = builder.add_token(entries[id].text, static_cast<std::int64_t>(id));
    if (!added) return broken(file, added.error().message);
  }
  for (const std::string_view merge : *merges) {
    if (auto added = builder.add_merge(merge); !added) return broken(file, added.error().message);
  }
  TokenizerParts parts;
  parts.model = builder.take();
  parts.byte_level = true;
  if ((*known)->is_nfc) {
    NormalizerStep step;
    step.kind = NormalizerStep::Kind::kForm;
    step.form = std::make_shared<const UnicodeFormer>(UnicodeForm::kNfc);
    parts.normalizer = Normalizer({std::move(step)});
  }
  auto pre_tokenizer = make_pre_tokenizer(**known);
  if (!pre_tokenizer) return pre_tokenizer.error();
  parts.pre_tokenizer = std::move(*pre_tokenizer);
  if (auto set = set_ends(file, entries.size(), false, (*known)->adds_bos, parts); !set) {
    return set.error();
  }
  return parts;
}

Result<TokenizerParts> read_scored(const gguf::GgufFile& file,
                                   const std::vector<VocabEntry>& entries) {
  if (!file.has(kScores)) return broken(file, "'" + std::string(kScores) + "' is missing");
  SentencePieceFile pieces;
  pieces.kind = SentencePieceKind::kBpe;
  pieces.unk_piece.clear();
  for (const VocabEntry& entry : entries) {
    pieces.pieces.push_back({std::string(entry.text), entry.score, entry.type});
    if (entry.type == PieceType::kUnknown && pieces.unk_piece.empty()) {
      pieces.unk_piece = entry.text;
    }
  }
  FolderConfig config;
  config.tokenizer_class = "LlamaTokenizer";
  config.legacy = true;  // a space in front of each text, also behind special tokens
  std::optional<Error> mistyped;
  config.add_prefix_space =
      file.boolean("tokenizer.ggml.add_space_prefix", mistyped).value_or(true);
  if (mistyped) return *mistyped;
  auto parts = make_sentencepiece_parts(pieces, config);
  if (!parts) return broken(file, parts.error().message);
  if (auto set = set_ends(file, entries.size(), true, true, *parts); !set) return set.error();
  return parts;
}

}  // namespace

Result<TokenizerParts> read_gguf_tokenizer(const std::string& path) {
  const auto file = gguf::GgufFile::open(path);
  if (!file) return file.error();
  const auto entries = read_entries(*file);
  if (!entries) return entries.error();
  std::optional<Error> mistyped;
  const std::string_view model = file->text("tokenizer.ggml.model", mistyped).value_or("");
  if (mistyped) return *mistyped;
  if (model != "gpt2" && model != "llama") {
    return broken(*file, "tokenizer.ggml.model: '" + std::string(model.substr(0, 64)) +
                             "' is not supported; supported are gpt2, llama");
  }
  auto parts = model == "gpt2" ? byte_level_parts(*file, *entries) : read_scored(*file, *entries);
  if (!parts) return parts.error();
  if (auto added = add_tokens(*file, *entries, *parts); !added) return added.error();
  return parts;
}

Result<std::map<std::string, std::string>> gguf_special_tokens(const std::string& path) {
  const auto file = gguf::GgufFile::open(path);
  if (!file) return file.error();
  std::optional<Error> mistyped;
  const auto tokens = file->texts(kTokens, mistyped).value_or(std::vector<std::string_view>{});
  std::map<std::string, std::string> named;
  for (const auto& [role, key] : {std::pair("bos_token", "tokenizer.ggml.bos_token_id"),
                                  std::pair("eos_token", "tokenizer.ggml.eos_token_id"),
                                  std::pair("unk_token", "tokenizer.ggml.unknown_token_id"),
                                  std::pair("pad_token", "tokenizer.ggml.padding_token_id")}) {
    const TokenId id = stored_id(*file, key, tokens.size(), -1, mistyped);
    if (id >= 0) named[role] = tokens[static_cast<std::size_t>(id)];
  }
  if (mistyped) return *mistyped;
  return named;
}

}  // namespace lmtp::tokenizer

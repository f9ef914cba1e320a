// Converts a sentencepiece model as transformers does. Its fast tokenizers are the reference for
// ids; they differ from sentencepiece in some points.
//
// Reference: transformers 4.57, convert_slow_tokenizer.py, LlamaConverter and GemmaConverter.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bpe.h"
#include "json_file.h"
#include "json_parts.h"
#include "lmtp/base/utf8.h"
#include "sentencepiece_file.h"
#include "tokenizer_files.h"
#include "unigram.h"

namespace lmtp::tokenizer {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581 stands for a space
constexpr std::string_view kTab = "\t";
constexpr std::string_view kTabByte = "<0x09>";
// The first pieces are control tokens with score 0; for Gemma, their names come from the
// configuration files.
constexpr std::size_t kNumFixed = 3;
constexpr const char* kGemmaFixed[kNumFixed] = {"pad_token", "eos_token", "bos_token"};
constexpr std::string_view kGemmaSpecials[] = {"<start_of_turn>", "<end_of_turn>"};

using PieceIndex = std::unordered_map<std::string_view, std::size_t>;

struct ScoredMerge {
  std::string_view left, right;
  double score;
  std::size_t left_id, right_id;
  std::size_t left_chars, right_chars;
};

std::size_t num_chars(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xC0) != 0x80;
  }));
}

// The converted pieces.
std::vector<Unigram::Piece> pieces_of(const SentencePieceFile& file, const FolderConfig& config,
                                      bool is_gemma) {
  std::vector<Unigram::Piece> pieces;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    pieces.push_back({piece.text, static_cast<double>(piece.score)});
  }
  for (std::size_t i = 0; i < kNumFixed && i < pieces.size(); ++i) {
    pieces[i].score = 0.0;
    if (is_gemma) pieces[i].text = special_content(config, kGemmaFixed[i]);
  }
  const auto is = [](std::string_view text) {
    return [text](const Unigram::Piece& piece) { return piece.text == text; };
  };
  // Gemma's first models have no tab; it replaces the piece of its byte.
  if (is_gemma && std::none_of(pieces.begin(), pieces.end(), is(kTab))) {
    const auto byte = std::find_if(pieces.begin(), pieces.end(), is(kTabByte));
    if (byte != pieces.end()) *byte = {std::string(kTab), 0.0};
  }
  return pieces;
}

// The pieces that may be in a merge: those of the file, and Gemma's tab.
PieceIndex vocab_of(const SentencePieceFile& file, bool is_gemma) {
  PieceIndex vocab;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    vocab.insert_or_assign(file.pieces[id].text, id);
  }
  if (is_gemma && !vocab.contains(kTab) && vocab.contains(kTabByte)) {
    vocab.emplace(kTab, vocab.at(kTabByte));
  }
  return vocab;
}

// All pairs of pieces whose concatenation is a piece, ordered by its score, best first.
std::vector<ScoredMerge> merges_of(const std::vector<Unigram::Piece>& pieces,
                                   const PieceIndex& vocab) {
  std::vector<ScoredMerge> merges;
  // A duplicate spelling takes its position from the first piece and its score from the last.
  std::unordered_map<std::string_view, double> scores;
  for (const Unigram::Piece& piece : pieces) scores.insert_or_assign(piece.text, piece.score);
  for (const Unigram::Piece& piece : pieces) {
    const auto score = scores.find(piece.text);
    if (score == scores.end()) continue;
    const std::size_t begin = merges.size();
    const std::string_view text = piece.text;
    const std::size_t chars = num_chars(text);
    std::size_t left_chars = 0;
    for (std::size_t pos = 0; pos < text.size();) {
      pos += code_point_at(text, pos).num_bytes;
      ++left_chars;
      if (pos == text.size()) break;
      const auto left = vocab.find(text.substr(0, pos));
      const auto right = vocab.find(text.substr(pos));
      if (left == vocab.end() || right == vocab.end()) continue;
      merges.push_back({left->first, right->first, score->second, left->second, right->second,
                        left_chars, chars - left_chars});
    }
    std::stable_sort(merges.begin() + static_cast<std::ptrdiff_t>(begin), merges.end(),
                     [](const ScoredMerge& a, const ScoredMerge& b) {
                       return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
                     });
    scores.erase(score);
  }
  std::stable_sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tuple(a.score, a.left_chars, a.right_chars) >
           std::tuple(b.score, b.left_chars, b.right_chars);
  });
  return merges;
}

Result<std::unique_ptr<WordModel>> make_bpe(const SentencePieceFile& file,
                                            const std::vector<Unigram::Piece>& pieces,
                                            bool is_gemma) {
  Bpe::Options options;
  options.unk_token = file.unk_piece;
  options.fuse_unk = true;
  options.byte_fallback = true;
  BpeBuilder builder(std::move(options));
  const PieceIndex vocab = vocab_of(file, is_gemma);
  const std::vector<ScoredMerge> merges = merges_of(pieces, vocab);
  builder.reserve(pieces.size(), pieces.size() * 8, merges.size());
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const auto added = builder.add_token(pieces[id].text, static_cast<std::int64_t>(id));
    if (!added) return added.error();
  }
  for (const ScoredMerge& merge : merges) {
    if (auto added = builder.add_merge(merge.left, merge.right); !added) return added.error();
  }
  return std::unique_ptr<WordModel>(builder.take());
}

Result<std::unique_ptr<WordModel>> make_model(const SentencePieceFile& file,
                                              const FolderConfig& config, bool is_gemma) {
  std::vector<Unigram::Piece> pieces = pieces_of(file, config, is_gemma);
  if (file.kind == SentencePieceKind::kBpe) return make_bpe(file, pieces, is_gemma);
  if (file.kind != SentencePieceKind::kUnigram) {
    return unsupported("a sentencepiece model that is neither BPE nor Unigram");
  }
  auto made = Unigram::make(std::move(pieces), is_gemma ? 3 : 0, true);
  if (!made) return made.error();
  return std::unique_ptr<WordModel>(std::move(*made));
}

NormalizerStep replace_spaces() {
  NormalizerStep step;
  step.kind = NormalizerStep::Kind::kReplace;
  step.pattern = SplitPattern::literal(" ");
  step.content = kMark;
  return step;
}

// A mark for each space, and one in front of every piece of text, of the first alone, or of none.
enum class MarkInFront : std::uint8_t { kNever, kFirst, kAlways };
PreTokenizer make_metaspace(MarkInFront where) {
  std::vector<PreTokenizerStep> steps(1);
  steps[0].kind = PreTokenizerStep::Kind::kReplace;
  steps[0].content = kMark;
  if (where != MarkInFront::kNever) {
    PreTokenizerStep prepend = steps[0];
    prepend.kind = PreTokenizerStep::Kind::kPrepend;
    prepend.first_only = where == MarkInFront::kFirst;
    steps.push_back(std::move(prepend));
  }
  return PreTokenizer(std::move(steps));
}

// Llama: with `legacy` a mark in front of every piece of text; without, of the first alone.
void make_llama_parts(const FolderConfig& config, bool adds_mark, TokenizerParts& parts) {
  if (config.legacy.value_or(true)) {
    std::vector<NormalizerStep> steps;
    if (adds_mark) {
      NormalizerStep prepend;
      prepend.kind = NormalizerStep::Kind::kPrepend;
      prepend.content = kMark;
      steps.push_back(std::move(prepend));
    }
    steps.push_back(replace_spaces());
    parts.normalizer = Normalizer(std::move(steps));
    return;
  }
  parts.pre_tokenizer = make_metaspace(adds_mark ? MarkInFront::kFirst : MarkInFront::kNever);
}

void make_gemma_parts(TokenizerParts& parts) {
  std::vector<NormalizerStep> steps;
  steps.push_back(replace_spaces());
  parts.normalizer = Normalizer(std::move(steps));
  PreTokenizerStep split;
  split.kind = PreTokenizerStep::Kind::kSplit;
  split.pattern = SplitPattern::literal(" ");
  split.behavior = SplitBehavior::kMergedWithPrevious;
  std::vector<PreTokenizerStep> pre_tokenizer;
  pre_tokenizer.push_back(std::move(split));
  parts.pre_tokenizer = PreTokenizer(std::move(pre_tokenizer));
}

Decoder make_decoder(bool drops_space) {
  std::vector<DecoderStep> steps(3);
  steps[0].kind = DecoderStep::Kind::kReplace;
  steps[0].pattern = SplitPattern::literal(kMark);
  steps[0].content = " ";
  steps[1].kind = DecoderStep::Kind::kByteFallback;
  steps[2].kind = DecoderStep::Kind::kFuse;
  if (drops_space) {
    DecoderStep strip;
    strip.kind = DecoderStep::Kind::kStrip;
    strip.content = " ";
    strip.start = 1;
    steps.push_back(std::move(strip));
  }
  return Decoder(std::move(steps));
}

// Control and user-defined pieces are added tokens, found before the text is split.
std::vector<AddedToken> added_tokens(const SentencePieceFile& file, bool is_gemma) {
  std::vector<AddedToken> tokens;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    if (piece.type != PieceType::kControl && piece.type != PieceType::kUserDefined) continue;
    AddedToken token;
    token.content = piece.text;
    token.special = piece.type == PieceType::kControl ||
                    (is_gemma && std::find(std::begin(kGemmaSpecials), std::end(kGemmaSpecials),
                                           piece.text) != std::end(kGemmaSpecials));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

void remake_llama_parts(const FolderConfig& config, TokenizerParts& parts) {
  const bool adds_mark = config.add_prefix_space.value_or(true);
  const bool legacy = config.legacy.value_or(false);
  parts.normalizer = Normalizer();
  parts.pre_tokenizer = make_metaspace(!adds_mark ? MarkInFront::kNever
                                       : legacy   ? MarkInFront::kAlways
                                                  : MarkInFront::kFirst);
  parts.decoder = make_decoder(adds_mark);
}

Result<TokenizerParts> read_sentencepiece(const std::string& path, const FolderConfig& config) {
  const auto bytes = read_text_file(path);
  if (!bytes) return bytes.error();
  if (looks_like_tiktoken(*bytes)) return read_tiktoken(path, config);
  const bool is_gemma = config.tokenizer_class == "GemmaTokenizer";
  if (!is_gemma && config.tokenizer_class != "LlamaTokenizer") {
    return unsupported(path + ": the tokenizer.model of a " + config.tokenizer_class);
  }
  const auto file = parse_sentencepiece(*bytes);
  if (!file) return Error{file.error().code, path + ": " + file.error().message};
  auto parts = make_sentencepiece_parts(*file, config);
  if (!parts) return Error{parts.error().code, path + ": " + parts.error().message};
  return parts;
}

Result<TokenizerParts> make_sentencepiece_parts(const SentencePieceFile& file,
                                                const FolderConfig& config) {
  const bool is_gemma = config.tokenizer_class == "GemmaTokenizer";
  auto model = make_model(file, config, is_gemma);
  if (!model) return model.error();
  TokenizerParts parts;
  parts.model = std::move(*model);
  const bool adds_mark =
      !is_gemma && config.add_prefix_space.value_or(!config.add_prefix_space_is_null);
  if (is_gemma) {
    make_gemma_parts(parts);
  } else {
    make_llama_parts(config, adds_mark, parts);
  }
  parts.decoder = make_decoder(adds_mark);
  parts.added.add(added_tokens(file, is_gemma), *parts.model);
  return parts;
}

}  // namespace lmtp::tokenizer

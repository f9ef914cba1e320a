// The parts that a tokenizer's files describe, and the tokenizer made of them.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "added_vocabulary.h"
#include "char_class.h"
#include "decoder.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "normalizer.h"
#include "pre_tokenizer.h"
#include "word_cache.h"
#include "word_model.h"

namespace lmtp::tokenizer {

// The result of a loader.
struct TokenizerParts {
  std::unique_ptr<WordModel> model;
  bool byte_level = false;  // the model's tokens are bytes; the decoder has no steps then
  bool from_ranks = false;  // tekken.json or tiktoken's: only the special tokens that files name
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Decoder decoder;
  AddedVocabulary added;
  std::vector<TokenId> prefix;  // what the post-processor puts in front of a text
  std::vector<TokenId> suffix;  // and after it
  TokenId bos_id = -1;
  TokenId eos_id = -1;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  // REQUIRES: parts.model.
  explicit PipelineTokenizer(TokenizerParts parts);

  Result<std::vector<TokenId>> encode(std::string_view text) const override;
  Result<std::vector<TokenId>> encode_around(std::string_view text,
                                             std::span<const TextRange> plain) const override;
  std::string decode(std::span<const TokenId> ids) const override;
  std::string_view token_bytes(TokenId id) const override;
  bool is_special(TokenId id) const override;
  int vocab_size() const override { return static_cast<int>(special_.size()); }
  TokenId bos_id() const override { return parts_.bos_id; }
  TokenId eos_id() const override { return parts_.eos_id; }
  bool adds_bos() const override;
  std::vector<TokenId> suffix() const override { return parts_.suffix; }
  std::size_t spaces_dropped_max() const override { return parts_.decoder.spaces_dropped_max(); }

 private:
  // Buffers of one encode() at a time; reused, so that the cache stays warm.
  struct EncodeScratch {
    WordCache cache;
    NormalizerScratch normalizer;
    PreTokenizerScratch pre_tokenizer;

    bool gave_up() const;
  };
  static constexpr std::size_t kScratchesMax = 16;
  static constexpr std::size_t kTextBytesMax = std::size_t{16}
                                               << 20;  // larger buffers are not kept
  class Encoder;

  std::unique_ptr<EncodeScratch> take_scratch() const;
  void give_back(std::unique_ptr<EncodeScratch> scratch) const;
  std::string_view spelling(TokenId id) const;
  void fill_token_bytes();

  const TokenizerParts parts_;
  const CharClasses classes_;
  AddedTokens raw_added_;         // found first, in the raw text
  AddedTokens normalized_added_;  // then these, in the rest of it, normalized
  std::vector<bool> special_;     // by id
  std::string bytes_;             // of all tokens, if they differ from the model's texts
  std::vector<std::size_t>
      begins_;  // by id: offset of a token's bytes in bytes_; one past the last

  mutable std::mutex scratches_mutex_;
  mutable std::vector<std::unique_ptr<EncodeScratch>> scratches_;  // at most kScratchesMax
};

}  // namespace lmtp::tokenizer

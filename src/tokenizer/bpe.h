// Bpe: byte pair encoding, over bytes (GPT-2) or over characters (sentencepiece).
//
// References: OpenAI gpt-2, src/encoder.py; Hugging Face tokenizers, models/bpe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmtp/base/result.h"
#include "merges.h"
#include "vocab.h"
#include "word_model.h"

namespace lmtp::tokenizer {

// The highest accepted id: bounds the memory that a corrupt file can cause to be allocated.
inline constexpr TokenId kTokenIdMax = (1 << 24) - 1;

class Bpe final : public WordModel {
 public:
  struct Options {
    bool byte_level = false;     // words are bytes; the vocabulary is spelt in GPT-2's alphabet
    std::string unk_token;       // replaces a character without a token; empty: it is dropped
    bool fuse_unk = false;       // one unk_token for several such characters in a row
    bool byte_fallback = false;  // such a character becomes tokens <0x00> to <0xFF>, if they exist
    bool ignore_merges = false;  // a word in the vocabulary is that token, regardless of merges
  };

  void append_tokens(std::string_view word, std::vector<TokenId>& out) const override;
  TokenId find(std::string_view spelling) const override;
  std::string_view text(TokenId id) const override { return vocab_.bytes(id); }
  int num_tokens() const override { return num_tokens_; }
  int id_end() const override { return vocab_.size(); }
  bool never_crosses(std::string_view mark) const override;

  const Options& options() const { return options_; }

 private:
  friend class BpeBuilder;
  Bpe() = default;

  void append_bytes(std::string_view word, std::vector<TokenId>& out) const;
  void append_chars(std::string_view word, std::vector<TokenId>& out) const;
  bool append_byte_fallback(std::string_view character, std::vector<TokenId>& out) const;

  Options options_;
  Vocab vocab_;
  Merges merges_;
  // Byte-level: tokens with characters outside the alphabet, which no word can become.
  std::unordered_map<std::string, TokenId> unspelt_;
  std::array<TokenId, 256> byte_tokens_{};  // byte-level: one-byte tokens; else <0x00> to <0xFF>
  TokenId unk_id_ = -1;
  int num_tokens_ = 0;
};

// Order of calls: reserve, all add_token, all add_merge, take.
class BpeBuilder {
 public:
  explicit BpeBuilder(Bpe::Options options);

  void reserve(std::size_t num_tokens, std::size_t num_bytes, std::size_t num_merges);

  // A vocabulary entry.
  Result<void> add_token(std::string_view spelling, std::int64_t id);

  // The merge of the next rank, as "left right" or as two strings.
  Result<void> add_merge(std::string_view both);
  Result<void> add_merge(std::string_view left, std::string_view right);

  std::unique_ptr<Bpe> take();

 private:
  bool append_part(std::string_view spelling);
  TokenId find_bytes(std::string_view bytes) const;

  std::unique_ptr<Bpe> bpe_;
  std::array<TokenId, 256> one_byte_tokens_;  // of the vocabulary's one-byte entries; -1: none
  std::uint32_t next_rank_ = 0;
  TokenId last_merged_ = -1;
  std::string buffer_;
};

}  // namespace lmtp::tokenizer

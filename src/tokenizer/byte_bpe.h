// Byte-level BPE: GPT-2's tokenizer and those made like it.
//
// References: OpenAI gpt-2, src/encoder.py; Hugging Face tokenizers, models/bpe and
// pre_tokenizers/byte_level.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "added_tokens.h"
#include "char_class.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "merges.h"
#include "vocab.h"
#include "word_cache.h"

namespace lmtp::tokenizer {

// All that a loader finds out.
struct ByteBpeModel {
  Vocab vocab;  // added tokens included; indexed: what words may become
  Merges merges;
  std::vector<AddedToken> added_tokens;
  TokenId unk_id = -1;         // what a byte without a token becomes; -1: nothing
  bool fuse_unk = false;       // one unk for several such bytes in a row
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  bool add_prefix_space = false;
  bool splits_words = true;  // by GPT-2's pattern; else each text between added tokens is one word
  TokenId bos_id = -1;
  TokenId eos_id = -1;
};

class ByteBpe final : public Tokenizer {
 public:
  explicit ByteBpe(ByteBpeModel model);

  std::vector<TokenId> encode(std::string_view text) const override;
  std::string_view token_bytes(TokenId id) const override;
  bool is_special(TokenId id) const override;
  int vocab_size() const override { return model_.vocab.size(); }
  TokenId bos_id() const override { return model_.bos_id; }
  TokenId eos_id() const override { return model_.eos_id; }

 private:
  // What one encode() at a time works with; kept for the next one, because the cache pays off then.
  struct Scratch {
    WordCache cache;
    std::vector<TokenId> word;
    std::string prefixed;
  };
  static constexpr std::size_t kScratchesMax = 16;

  std::unique_ptr<Scratch> take_scratch() const;
  void give_back(std::unique_ptr<Scratch> scratch) const;

  // Each appends to `out`. `text` is valid UTF-8.
  void encode_text(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_between(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  // Fills `tokens` with the word's tokens.
  void merge_word(std::string_view word, std::vector<TokenId>& tokens) const;

  const ByteBpeModel model_;
  const CharClasses classes_;
  AddedTokens raw_added_;         // looked for first
  AddedTokens normalized_added_;  // then these, in what is left
  std::array<TokenId, 256> byte_tokens_;
  std::vector<bool> special_;  // by id

  mutable std::mutex scratches_mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> scratches_;  // at most kScratchesMax
};

}  // namespace lmtp::tokenizer

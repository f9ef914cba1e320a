// Unigram: the most probable segmentation of a word into tokens.
//
// References: Kudo 2018, "Subword Regularization"; sentencepiece, src/unigram_model.cc; Hugging
// Face tokenizers, models/unigram.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "byte_trie.h"
#include "lmtp/base/result.h"
#include "word_model.h"

namespace lmtp::tokenizer {

class Unigram final : public WordModel {
 public:
  struct Piece {
    std::string text;
    double score;  // log probability
  };
  // `unk_id` -1: none. The error says what is wrong.
  static Result<std::unique_ptr<Unigram>> make(std::vector<Piece> pieces, TokenId unk_id,
                                               bool byte_fallback);

  void append_tokens(std::string_view word, std::vector<TokenId>& out) const override;
  TokenId find(std::string_view spelling) const override;
  std::string_view text(TokenId id) const override;
  int num_tokens() const override { return static_cast<int>(pieces_.size()); }
  int id_end() const override { return num_tokens(); }
  bool never_crosses(std::string_view) const override { return false; }

 private:
  // The best segmentation that ends at some byte of the word.
  struct Node {
    TokenId id = -1;
    double score = 0.0;
    std::size_t start = kNoStart;
  };
  static constexpr std::size_t kNoStart = static_cast<std::size_t>(-1);

  Unigram() = default;
  void find_best(std::string_view word, std::vector<Node>& ends_at) const;
  void append_piece(std::string_view text, std::vector<TokenId>& out) const;

  std::vector<Piece> pieces_;
  ByteTrie trie_;
  std::array<TokenId, 256> byte_tokens_{};  // <0x00> to <0xFF>
  TokenId unk_id_ = -1;
  double unk_score_ = 0.0;
  bool byte_fallback_ = false;
};

}  // namespace lmtp::tokenizer

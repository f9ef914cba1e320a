// WordLevel: a word is one token, or the unknown token. Hugging Face tokenizers, models/wordlevel.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"
#include "vocab.h"
#include "word_model.h"

namespace lmtp::tokenizer {

class WordLevel final : public WordModel {
 public:
  // REQUIRES: 0 <= id <= kTokenIdMax.
  void add_token(std::string_view text, TokenId id);
  // The token for unknown words; call after all add_token(). False if there is no such token.
  bool set_unknown(std::string_view text);

  void append_tokens(std::string_view word, std::vector<TokenId>& out) const override;
  TokenId find(std::string_view spelling) const override { return vocab_.find(spelling); }
  std::string_view text(TokenId id) const override { return vocab_.bytes(id); }
  int num_tokens() const override { return num_tokens_; }
  int id_end() const override { return vocab_.size(); }
  bool never_crosses(std::string_view) const override { return false; }

 private:
  Vocab vocab_;
  TokenId unk_id_ = -1;
  int num_tokens_ = 0;
};

}  // namespace lmtp::tokenizer

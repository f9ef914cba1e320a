// WordModel: turns one word into tokens.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::tokenizer {

// Immutable once made; any thread.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the word's tokens. REQUIRES: valid UTF-8, not empty.
  virtual void append_tokens(std::string_view word, std::vector<TokenId>& out) const = 0;

  // The token of this spelling in the vocabulary; -1 if there is none.
  virtual TokenId find(std::string_view spelling) const = 0;

  // The token's bytes in a byte-level model, its spelling in others; empty for unknown ids. Lives
  // as long as the model.
  virtual std::string_view text(TokenId id) const = 0;

  virtual int num_tokens() const = 0;
  // One more than the highest id.
  virtual int id_end() const = 0;

  // Whether in no token a `mark` follows another character, so that words may be split there.
  virtual bool never_crosses(std::string_view mark) const = 0;
};

}  // namespace lmtp::tokenizer

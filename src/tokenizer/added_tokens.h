// Added tokens: texts such as <|endoftext|> that become one id before any other processing.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "byte_trie.h"
#include "char_class.h"
#include "lmtp/base/ids.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::tokenizer {

// One entry of tokenizer.json's added_tokens.
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;
  bool normalized = false;   // matched in the normalized text, after those matched in the raw text
  bool single_word = false;  // matches only if no word character is beside it
  bool lstrip = false;       // the match includes white space before it
  bool rstrip = false;       // and after it

  bool operator==(const AddedToken&) const = default;
};

// Finds added tokens in a text: the leftmost; of several there the longest.
// Filled once, then only read: any thread.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Of tokens with the same content the first counts; empty ones are ignored.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    const AddedToken* token;
    std::size_t begin, end;  // bytes of the text, stripped white space included
  };

  // The position of a search; one for each text. Matches may overlap: the white space that a token
  // strips may contain another token.
  struct Cursor {
    std::size_t search_from = 0;  // the next match begins here or later
    std::size_t taken_to = 0;     // bytes before this belong to earlier matches
  };
  // Where special tokens are not looked for (Tokenizer::encode_around); `offset` is that of the
  // text of the search in the one of which these are.
  struct Plain {
    std::span<const TextRange> ranges = {};
    std::size_t offset = 0;

    bool touches(std::size_t begin, std::size_t end) const;
  };
  // The next match. REQUIRES: `text` is valid UTF-8.
  std::optional<Match> next(const CharClasses& classes, std::string_view text, Plain plain,
                            Cursor& cursor) const;

  bool has_special() const { return has_special_; }

 private:
  const AddedToken* token_at(std::string_view text, Plain plain, std::size_t pos) const;
  std::size_t find_first_byte(std::string_view text, std::size_t pos) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // of indices into tokens_
  std::array<bool, 256> begins_{};
  bool one_first_byte_ = false;  // all begin with the same byte: memchr finds candidates
  bool has_special_ = false;
};

}  // namespace lmtp::tokenizer

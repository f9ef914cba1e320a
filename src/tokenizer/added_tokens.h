// Added tokens: texts such as <|endoftext|> that become one id before anything else is looked at.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "byte_trie.h"
#include "char_class.h"
#include "lmtp/base/ids.h"

namespace lmtp::tokenizer {

// One entry of tokenizer.json's added_tokens.
struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool special = false;
  bool normalized = false;   // looked for in the normalized text, after all those that are not
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it

  bool operator==(const AddedToken&) const = default;
};

// Finds them: the leftmost, the longest where several begin there.
// Filled once, then only read: any thread.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Of tokens with the same content the first counts; those without any are left out.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Match {
    const AddedToken* token;
    std::size_t begin, end;  // what it takes of the text, stripped white space included
  };

  // Where to look on; an encode() begins with a new one. Matches may overlap: what a token strips
  // may hold another one.
  struct Cursor {
    std::size_t search_from = 0;  // where the next match may begin
    std::size_t taken_to = 0;     // what lies before belongs to an earlier match
  };
  // The next match. REQUIRES: `text` is valid UTF-8.
  std::optional<Match> next(const CharClasses& classes, std::string_view text,
                            Cursor& cursor) const;

  bool empty() const { return tokens_.empty(); }

 private:
  const AddedToken* token_at(std::string_view text, std::size_t pos) const;
  std::size_t find_first_byte(std::string_view text, std::size_t pos) const;

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // of indices into tokens_
  std::array<bool, 256> begins_{};
  bool one_first_byte_ = false;  // then memchr finds candidates
};

}  // namespace lmtp::tokenizer

// Letters, numbers, spaces: the classes of characters in pre-tokenizing patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lmtp::tokenizer {

enum class CharClass : std::uint8_t { kOther, kLetter, kNumber, kSpace };

// \w as in the added tokens' single_word: letters, marks, digits, connectors.
bool is_word_char(char32_t code_point);

// Immutable once made; any thread.
class CharClasses {
 public:
  CharClasses();

  CharClass of(char32_t code_point) const {
    return code_point < classes_.size() ? classes_[code_point] : CharClass::kOther;
  }

  // The end of the run of `wanted` that begins at `pos`; `pos` if it is empty.
  // REQUIRES: `text` is valid UTF-8; pos is the start of a character or the end.
  std::size_t run_end(std::string_view text, std::size_t pos, CharClass wanted) const;

 private:
  std::vector<CharClass> classes_;  // by code point, up to the last that is not kOther
};

}  // namespace lmtp::tokenizer

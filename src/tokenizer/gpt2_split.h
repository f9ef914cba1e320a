// The pre-tokenizing pattern of GPT-2, hand-written instead of a regular expression.
#pragma once

#include <cstddef>
#include <string_view>

#include "char_class.h"

namespace lmtp::tokenizer {

// The end of the word that begins at `pos`. Equal to what
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// matches there (OpenAI gpt-2, src/encoder.py); the pattern matches any text.
// REQUIRES: `text` is valid UTF-8; pos < text.size() is the start of a character.
std::size_t gpt2_word_end(const CharClasses& classes, std::string_view text, std::size_t pos);

}  // namespace lmtp::tokenizer

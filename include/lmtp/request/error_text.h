// What is wrong with a value, in words that several modules need: each sees it where it can first.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp {

// The error as one of that field: its message begins with the name, or with a place within it
// ("[2].role: ...").
inline Error with_field_name(std::string_view field, Error error) {
  if (error.message.starts_with(field)) return error;
  const bool is_place = error.message.starts_with('[');
  error.message.insert(0, std::string(field) + (is_place ? "" : ": "));
  return error;
}

// What follows the name of `resumed`.
inline std::string beyond_prompt(std::size_t num_resumed, std::size_t num_prompt) {
  return "is " + std::to_string(num_resumed) + "; allowed are at most " +
         std::to_string(num_prompt) + " (the tokens of the prompt)";
}

// What follows the name of the field.
inline std::string beyond_vocabulary(TokenId id, int vocab_size) {
  return "token id " + std::to_string(id) + " is not in the vocabulary, allowed are 0 to " +
         std::to_string(vocab_size - 1);
}

}  // namespace lmtp

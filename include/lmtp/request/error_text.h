// What is wrong with a value, in words that several modules need: each sees it where it can first.
#pragma once

#include <cstddef>
#include <string>

#include "lmtp/base/ids.h"

namespace lmtp {

// Of `resumed`, behind its name.
inline std::string beyond_prompt(std::size_t num_resumed, std::size_t num_prompt) {
  return "is " + std::to_string(num_resumed) + "; allowed are at most " +
         std::to_string(num_prompt) + " (the tokens of the prompt)";
}

// Behind the name of the field.
inline std::string beyond_vocabulary(TokenId id, int vocab_size) {
  return "token id " + std::to_string(id) + " is not in the vocabulary, allowed are 0 to " +
         std::to_string(vocab_size - 1);
}

}  // namespace lmtp

// What a stream's generated tokens must not contain.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/mask_source.h"

namespace lmtp {

inline constexpr std::size_t kMaxBadWords = 128;
inline constexpr std::size_t kMaxBadWordBytes = 256;

struct BadWords {
  std::vector<std::string> texts;         // as the client sent them
  std::vector<std::vector<TokenId>> ids;  // what the tokenizer makes of them; none is empty
};

// Keeps these out of what is generated: the last token of one may not follow the others of it. The
// tokens before it decide, generated ones alone. `inner`: what else decides on them; null: nothing.
// REQUIRES: inner->begin() returns false.
std::shared_ptr<const MaskSource> without(std::shared_ptr<const BadWords> words,
                                          std::shared_ptr<const MaskSource> inner);

}  // namespace lmtp

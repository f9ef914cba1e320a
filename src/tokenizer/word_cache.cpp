#include "word_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace lmtp::tokenizer {

WordCache::WordSlot& WordCache::slot_of(std::string_view word) {
  return slots_[XXH3_64bits(word.data(), word.size()) & (kNumSlots - 1)];
}

bool WordCache::holds(const WordSlot& slot, std::string_view word) {
  return slot.num_bytes == word.size() && std::equal(word.begin(), word.end(), slot.bytes.begin());
}

void WordCache::store(WordSlot& slot, std::string_view word, std::span<const TokenId> tokens) {
  if (tokens.size() > kTokensMax) return;
  slot.num_bytes = static_cast<std::uint8_t>(word.size());
  slot.num_tokens = static_cast<std::uint8_t>(tokens.size());
  std::copy(word.begin(), word.end(), slot.bytes.begin());
  std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
}

}  // namespace lmtp::tokenizer

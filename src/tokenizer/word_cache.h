// WordCache: the tokens of recent words. Texts repeat their words, and a look-up is some twenty
// times faster than merging a word's bytes again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::tokenizer {

// A direct-mapped cache: a word's hash selects its only slot, which a new word overwrites.
// Owner: one encode() at a time; one thread.
class WordCache {
 public:
  static constexpr std::size_t kNumSlots = std::size_t{1} << 15;  // 2 MiB
  static constexpr std::size_t kWordBytesMax = 30;
  static constexpr std::size_t kTokensMax = 8;

  struct WordSlot {
    std::uint8_t num_bytes = 0;  // 0: free
    std::uint8_t num_tokens = 0;
    std::array<char, kWordBytesMax> bytes;
    std::array<TokenId, kTokensMax> tokens;
  };
  static_assert(sizeof(WordSlot) == 64, "a slot is one cache line");

  // REQUIRES: 0 < word.size() <= kWordBytesMax.
  WordSlot& slot_of(std::string_view word);
  static bool holds(const WordSlot& slot, std::string_view word);
  // Words of more than kTokensMax tokens are not kept.
  static void store(WordSlot& slot, std::string_view word, std::span<const TokenId> tokens);

 private:
  std::vector<WordSlot> slots_{kNumSlots};
};

}  // namespace lmtp::tokenizer

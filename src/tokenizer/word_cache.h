// WordCache: the tokens of words met before. Texts repeat their words, and looking one up is some
// twenty times faster than merging its bytes again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::tokenizer {

// A table of fixed size: a word's hash names its one slot, and a newcomer takes it.
// Owner: one encode() at a time; one thread.
class WordCache {
 public:
  static constexpr std::size_t kNumSlots = std::size_t{1} << 15;  // 2 MiB
  static constexpr std::size_t kWordBytesMax = 30;
  static constexpr std::size_t kTokensMax = 8;

  struct Slot {
    std::uint8_t num_bytes = 0;  // 0: free
    std::uint8_t num_tokens = 0;
    std::array<char, kWordBytesMax> bytes;
    std::array<TokenId, kTokensMax> tokens;
  };
  static_assert(sizeof(Slot) == 64, "a slot is one cache line");

  // REQUIRES: 0 < word.size() <= kWordBytesMax.
  Slot& slot_of(std::string_view word);
  static bool holds(const Slot& slot, std::string_view word);
  // Words of more than kTokensMax tokens are not kept.
  static void store(Slot& slot, std::string_view word, std::span<const TokenId> tokens);

 private:
  std::vector<Slot> slots_{kNumSlots};
};

}  // namespace lmtp::tokenizer

// What may follow a text, by what it says already. A free function without state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "lmtp/base/ids.h"

namespace lmtp::scheduler {

// Tokens before the end that are searched, and those of its end that are compared.
inline constexpr std::size_t kLookBackMax = 16'384;
inline constexpr std::size_t kRepeatMax = 16;

// What followed the last tokens of the text where they occurred before, up to its end: after the
// longest such repeat, of those equally long the latest. Empty: the last `least` tokens did not.
// REQUIRES: the text is not empty; 1 <= least <= kRepeatMax.
inline std::span<const TokenId> find_repeat(std::span<const TokenId> text, std::size_t least) {
  const std::size_t size = text.size();
  const std::size_t first = size - std::min(size, kLookBackMax);
  std::size_t longest = least - 1;
  std::size_t found = size;
  for (std::size_t end = size; --end > first && longest < kRepeatMax;) {
    if (text[end - 1] != text[size - 1]) continue;
    const std::size_t most = std::min(end - first, kRepeatMax);
    std::size_t same = 1;
    while (same < most && text[end - 1 - same] == text[size - 1 - same]) ++same;
    if (same <= longest) continue;
    longest = same;
    found = end;
  }
  return text.subspan(found);
}

}  // namespace lmtp::scheduler

// Tokens that tests tell apart.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::testing {

// first, first + 1, ...
inline std::vector<TokenId> counting(int first, int count) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<TokenId> first_of(const std::vector<TokenId>& tokens, std::size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace lmtp::testing

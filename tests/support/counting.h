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

}  // namespace lmtp::testing

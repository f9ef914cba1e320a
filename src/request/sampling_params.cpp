#include "lmtp/request/sampling_params.h"

#include <algorithm>

namespace lmtp {

bool TokenMask::allows_other(std::span<const TokenId> ids, int vocab_size) const {
  constexpr int kWordBits = 64;
  for (int first = 0; first < vocab_size; first += kWordBits) {
    const auto at = static_cast<std::size_t>(first / kWordBits);
    if (at == words.size()) break;
    const int num_bits = std::min(kWordBits, vocab_size - first);
    std::uint64_t left = words[at] & ~std::uint64_t{0} >> (kWordBits - num_bits);
    if (left == 0) continue;
    for (const TokenId id : ids) {
      if (id / kWordBits == first / kWordBits) left &= ~(std::uint64_t{1} << id % kWordBits);
    }
    if (left != 0) return true;
  }
  return false;
}

std::vector<TokenId> SamplingParams::end_ids(std::span<const TokenId> eos_ids) const {
  std::vector<TokenId> ids = stop_token_ids;
  if (!ignore_eos) ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  return ids;
}

}  // namespace lmtp

#include "placement.h"

#include <algorithm>

#include "lmtp/base/check.h"

namespace lmtp::balance {
namespace {

// Of those with the least, one by chance.
std::size_t least(std::span<const Candidate> candidates, std::int64_t Candidate::*load,
                  std::uint64_t chance) {
  const std::size_t first = chance % candidates.size();
  std::size_t best = first;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    const std::size_t at = (first + i) % candidates.size();
    if (candidates[at].*load < candidates[best].*load) best = at;
  }
  return best;
}

}  // namespace

std::size_t choose(std::span<const Candidate> candidates, const Choice& choice) {
  LMTP_CHECK(!candidates.empty());
  if (choice.policy == Policy::kRandom) return choice.chance % candidates.size();
  if (choice.policy == Policy::kLeastConn) {
    return least(candidates, &Candidate::num_streams, choice.chance);
  }
  const auto known = choice.known ? std::ranges::find(candidates, *choice.known, &Candidate::worker)
                                  : candidates.end();
  if (known != candidates.end()) {
    std::int64_t sum = choice.num_tokens;
    for (const Candidate& one : candidates) sum += one.num_tokens;
    const double mean = static_cast<double>(sum) / static_cast<double>(candidates.size());
    const double most =
        std::max(choice.balance_factor * mean, static_cast<double>(kUnbalancedTokensMax));
    if (static_cast<double>(known->num_tokens + choice.num_tokens) <= most) {
      return static_cast<std::size_t>(known - candidates.begin());
    }
  }
  return least(candidates, &Candidate::num_tokens, choice.chance);
}

}  // namespace lmtp::balance

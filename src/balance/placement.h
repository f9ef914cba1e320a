// Which worker gets a stream. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "lmtp/balance/remote_models.h"

namespace lmtp::balance {

// A worker that could take it.
struct Candidate {
  std::size_t worker = 0;
  std::int64_t num_tokens = 0;  // that its streams have still to compute, at most
  std::int64_t num_streams = 0;
};

// A worker with less to do than this keeps its prefixes, whatever the others have: what waits there
// is computed in about a second, and on another worker the prefix had to be computed as well.
inline constexpr std::int64_t kUnbalancedTokensMax = 4096;

struct Choice {
  Policy policy = Policy::kPrefix;
  double balance_factor = 1.25;
  std::optional<std::size_t> known = {};  // the worker that has seen the stream's beginning
  std::int64_t num_tokens = 0;            // of the stream
  std::uint64_t chance = 0;               // decides between equals, and at random
};

// An index of `candidates`. REQUIRES: not empty.
std::size_t choose(std::span<const Candidate> candidates, const Choice& choice);

}  // namespace lmtp::balance

// What ends a Generate, and what keeps it from ending before its min_tokens. Free functions over a
// Sequence.
#pragma once

#include <span>

#include "lmtp/base/ids.h"
#include "lmtp/request/event.h"
#include "lmtp/scheduler/sequence.h"

namespace lmtp::scheduler {

// Before its first step: where it may not end yet, the tokens that would end it become impossible.
void withhold_end(Sequence& sequence, std::span<const TokenId> eos_ids);

// Whether the token that is drawn next is the last one under withhold_end(): the step after it has
// other parameters.
inline bool is_withheld_last(const Sequence& sequence) {
  return sequence.is_end_withheld && sequence.num_counted() + 1 >= sequence.params.min_tokens;
}

// How the sequence ends by its newest token; kNone: it goes on. Once for each token.
FinishReason end_by_last_token(Sequence& sequence, std::span<const TokenId> eos_ids);

}  // namespace lmtp::scheduler

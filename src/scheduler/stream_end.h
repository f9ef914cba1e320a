// What ends a Generate, and what keeps it from ending before its min_tokens. Free functions over a
// Sequence.
#pragma once

#include <algorithm>
#include <span>

#include "lmtp/base/ids.h"
#include "lmtp/request/event.h"
#include "lmtp/scheduler/sequence.h"

namespace lmtp::scheduler {

// Before its first step, and where it lost tokens: where it may not end yet, the tokens that would
// end it become impossible.
void withhold_end(Sequence& sequence, std::span<const TokenId> eos_ids);

// Whether withhold_end() is lifted by what the row in flight gives: the step after it has other
// parameters.
inline bool ends_withholding(const Sequence& sequence) {
  return sequence.is_end_withheld &&
         sequence.num_counted() + sequence.in_flight.num_logits >= sequence.params.min_tokens;
}

// What depends on how many tokens there are: lifts withhold_end() when it is time, and asks the
// checker. True: the sequence ends by this token, its newest. An appended one ends nothing.
bool check_stops(Sequence& sequence, TokenId token, bool is_appended = false);

// Whether it is one of those that end the sequence by themselves.
inline bool is_end(const Sequence& sequence, TokenId token, std::span<const TokenId> eos_ids) {
  const SamplingParams& params = sequence.params;
  const auto is_among = [token](std::span<const TokenId> ids) {
    return std::ranges::find(ids, token) != ids.end();
  };
  return (!params.ignore_eos && is_among(eos_ids)) || is_among(params.stop_token_ids);
}

// How the sequence ends by its newest token; kNone: it goes on. Once for each token. Most sequences
// have nothing but the model's end tokens and their length.
inline FinishReason end_by_last_token(Sequence& sequence, std::span<const TokenId> eos_ids) {
  bool stops = is_end(sequence, sequence.tokens.back(), eos_ids);
  if (sequence.is_end_withheld || sequence.stops != nullptr) {
    stops |= check_stops(sequence, sequence.tokens.back());
  }
  if (stops) return FinishReason::kStop;
  return sequence.num_generated() >= sequence.num_generated_max ? FinishReason::kLength
                                                                : FinishReason::kNone;
}

}  // namespace lmtp::scheduler

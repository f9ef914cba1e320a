// Arithmetic over sequences, blocks and the token budget; free functions without state.
#pragma once

#include <cstddef>

#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

inline int blocks_for(int num_tokens) { return (num_tokens + kBlockSize - 1) / kBlockSize; }

// Tokens that must still go through the model before the sequence's next token is known.
inline int num_remaining(const Sequence& sequence) {
  return sequence.num_to_compute() - sequence.num_computed;
}

// All but cached: what is missing costs next to nothing.
inline bool is_small(int num_missing) { return num_missing <= kBlockSize; }

// What a waiting sequence would have to compute, as far as is known.
inline int num_missing(const Sequence& sequence) {
  return sequence.num_to_compute() - sequence.num_cached_hint;
}

// How many leading tokens may be taken from the prefix cache: the logits that come next must be
// computed, so the token before the next one to emit is never among them.
std::size_t num_matchable(const Sequence& sequence);

// What a step has beside its decodes.
struct StepShares {
  int prefill = 0;
  int cached = 0;  // for what is all but cached
};

// Divides what num_decodes leave of a step between those that want it: where both do, neither is
// left without (but of one token, which goes to the prefills).
StepShares divide_step(int max_batched_tokens, int num_decodes, const StepLimits& limits,
                       StepShares wanted);

// The row that moves the cursor of `sequence` on by num_tokens.
PlanRow make_row(const Sequence& sequence, int num_tokens);

}  // namespace lmtp::scheduler

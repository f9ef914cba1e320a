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

// How many leading tokens may be taken from the prefix cache: the logits that come next must be
// computed, so the token before the next one to emit is never among them.
std::size_t num_matchable(const Sequence& sequence);

// Tokens that a step may spend on prefill when it already decodes num_decodes: while there are any,
// at most `most` (but two blocks), and at most a quarter of the step.
int prefill_quota(int max_batched_tokens, int num_decodes, int most);

// The row that moves the cursor of `sequence` on by num_tokens.
PlanRow make_row(const Sequence& sequence, int num_tokens);

}  // namespace lmtp::scheduler

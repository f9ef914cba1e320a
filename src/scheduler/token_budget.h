// Arithmetic over sequences, blocks and the token budget; free functions without state.
#pragma once

#include <cstddef>

#include "lmtp/base/batch_limits.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

inline int blocks_for(int num_tokens) { return (num_tokens + kBlockSize - 1) / kBlockSize; }

// Tokens that must still go through the model before the sequence's next token is known; behind the
// row that is in flight.
inline int num_remaining(const Sequence& sequence) {
  const int drawn = sequence.in_flight.draws ? 1 : 0;
  return sequence.num_to_compute() + drawn - sequence.num_computed_ahead();
}

// Almost cached (LMQL's continuations): at most a block is to be computed.
inline bool is_small(int num_missing) { return num_missing <= kBlockSize; }

// Tokens that a waiting sequence would have to compute, by its hint.
inline int num_missing(const Sequence& sequence) {
  return sequence.num_to_compute() - sequence.num_cached_hint;
}

// Leading tokens that may be taken from the prefix cache: not the token before the next one to
// emit, whose logits must be computed.
std::size_t num_matchable(const Sequence& sequence);

// How many tokens behind num_computed one row may have, behind the row that is in flight: before
// min_tokens, where the bias depends on the position, up to the next one that is reported.
int num_alike(const Sequence& sequence, int num_computed);

// Tokens that a sequence may come to have.
inline int num_tokens_max(const Sequence& sequence) {
  return sequence.kind == RequestKind::kScore ? sequence.length()
                                              : sequence.num_prompt + sequence.num_generated_max;
}

// Tokens of a step beside its decodes.
struct StepShares {
  int prefill = 0;
  int cached = 0;  // for almost cached sequences
};

// Divides what num_decodes leave of a step by what is wanted. If both kinds want tokens, neither
// gets none (a single token goes to the prefills).
StepShares divide_step(const BatchLimits& batch, int num_decodes, const StepLimits& limits,
                       StepShares wanted);

// The row that advances the cursor of `sequence` by num_tokens; behind the row that is in flight.
PlanRow make_row(const Sequence& sequence, int num_tokens);

}  // namespace lmtp::scheduler

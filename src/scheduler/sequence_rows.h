// What a sequence still has to compute, and the rows that do it: free functions without state. All
// of them speak of the sequence as it will be after the row that is in flight, if one is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"
#include "stream_end.h"

namespace lmtp::scheduler {

// Tokens that must still go through the model before the sequence's next token is known.
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
// emit, whose logits must be computed; of an Embed all that its pooling does not read.
std::size_t num_matchable(const Sequence& sequence);

// The most tokens from num_computed on that one row may have: before min_tokens, where the bias
// depends on the position, up to the next one that is reported.
int num_alike(const Sequence& sequence, int num_computed);

// Tokens that a sequence may come to have.
inline int num_tokens_max(const Sequence& sequence) {
  return sequence.kind == RequestKind::kGenerate ? sequence.num_prompt + sequence.num_generated_max
                                                 : sequence.length();
}

// Whether a waiting sequence has waited so long that it precedes all that came later on its
// connection, and that its prefix comes from the host whatever else does.
inline bool has_aged(const Sequence& sequence, std::int64_t step) {
  return step - sequence.waiting_since > 256;
}

// Whether a plan may give the sequence a row: it is not held, and the row in flight leaves
// something to do and does not change its parameters.
inline bool may_continue(const Sequence& sequence) {
  const RowInFlight& row = sequence.in_flight;
  if (sequence.is_held || (sequence.is_controlled && row.draws)) return false;
  if (row.row < 0) return true;
  const bool is_last = row.draws && sequence.length_ahead() >= num_tokens_max(sequence);
  return !is_last && !ends_withholding(sequence);
}

// Whether it is a running prefill. A sequence that step `step` admits has its row already.
inline bool is_prefill(const Sequence& sequence, std::int64_t step) {
  return num_remaining(sequence) > 1 && sequence.admission_step != step && may_continue(sequence);
}

// The row that advances the cursor of `sequence` by num_tokens.
PlanRow make_row(const Sequence& sequence, int num_tokens);

}  // namespace lmtp::scheduler

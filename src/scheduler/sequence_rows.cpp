#include "sequence_rows.h"

#include <algorithm>

namespace lmtp::scheduler {
namespace {

// Appended tokens that are scored in one step where there are penalties: each of them has a list of
// all tokens before it.
constexpr int kCountedMax = 32;

}  // namespace

std::size_t num_matchable(const Sequence& sequence) {
  const Pooling pooling = sequence.params.pooling;
  if (pooling != Pooling::kNone && pooling != Pooling::kLast) return 0;
  return static_cast<std::size_t>(std::max(sequence.num_prompt + sequence.num_emitted - 1, 0));
}

int num_alike(const Sequence& sequence, int num_computed) {
  const int num_known = sequence.num_prompt + sequence.num_emitted_ahead() - num_computed;
  if (sequence.num_counted() < sequence.params.min_tokens) return std::max(1, num_known);
  if (!sequence.params.has_penalties()) return StepLimits::kAny;
  return std::max(num_known, 0) + kCountedMax;
}

PlanRow make_row(const Sequence& sequence, int num_tokens) {
  const int first = sequence.num_computed_ahead();
  const int end = first + num_tokens;
  const int next = sequence.num_prompt + sequence.num_emitted_ahead();
  const bool embeds = sequence.kind == RequestKind::kEmbed;
  const int num_logits = embeds ? 0 : std::max(0, end - std::max(next - 1, first));
  return {.slot = sequence.slot,
          .first_position = first,
          .num_tokens = num_tokens,
          .num_logits = num_logits,
          .num_scored = num_logits - (!embeds && end == sequence.length_ahead() ? 1 : 0),
          .input_row = sequence.in_flight.draws ? sequence.in_flight.row : -1};
}

}  // namespace lmtp::scheduler

#include "token_budget.h"

#include <algorithm>

namespace lmtp::scheduler {
namespace {

// Appended tokens that are scored in one step where there are penalties: each of them has a list of
// all tokens before it.
constexpr int kCountedMax = 32;

}  // namespace

std::size_t num_matchable(const Sequence& sequence) {
  return static_cast<std::size_t>(std::max(sequence.num_prompt + sequence.num_emitted - 1, 0));
}

int num_alike(const Sequence& sequence, int num_computed) {
  const int num_known = sequence.num_prompt + sequence.num_emitted_ahead() - num_computed;
  if (sequence.num_counted() < sequence.params.min_tokens) return std::max(1, num_known);
  if (!sequence.params.has_penalties()) return StepLimits::kAny;
  return std::max(num_known, 0) + kCountedMax;
}

StepShares divide_step(const BatchLimits& batch, int num_decodes, const StepLimits& limits,
                       StepShares wanted) {
  constexpr int kAlways = 2 * kBlockSize;
  int left = batch.max_tokens - num_decodes;
  if (batch.max_prefill_tokens > 0) left = std::min(left, batch.max_prefill_tokens);
  if (num_decodes == 0) left = std::min(left, std::max(limits.alone, kAlways));
  StepShares most{left, left};
  if (num_decodes > 0) {
    const int quota = std::min(batch.max_tokens / 4, std::max(limits.prefill, kBlockSize));
    most.prefill = std::clamp(quota, std::min(kBlockSize, left), left);
    most.cached = std::min(left, std::max(limits.cached, kAlways));
    left = std::max(most.prefill, most.cached);  // together no more than one of them alone
  }
  const int kept = std::min({wanted.cached, most.cached, left / 2});
  const int prefill = std::min({wanted.prefill, most.prefill, left - kept});
  return {prefill, std::min(most.cached, left - prefill)};
}

PlanRow make_row(const Sequence& sequence, int num_tokens) {
  const int first = sequence.num_computed_ahead();
  const int end = first + num_tokens;
  const int next = sequence.num_prompt + sequence.num_emitted_ahead();
  const int num_logits = std::max(0, end - std::max(next - 1, first));
  return {.slot = sequence.slot,
          .first_position = first,
          .num_tokens = num_tokens,
          .num_logits = num_logits,
          .num_scored = num_logits - (end == sequence.length_ahead() ? 1 : 0),
          .input_row = sequence.in_flight.draws ? sequence.in_flight.row : -1};
}

}  // namespace lmtp::scheduler

#include "token_budget.h"

#include <algorithm>

namespace lmtp::scheduler {

std::size_t num_matchable(const Sequence& sequence) {
  const int next = sequence.kind == SequenceKind::kScore
                       ? sequence.num_prompt + sequence.num_emitted
                       : sequence.length();
  return static_cast<std::size_t>(std::max(next - 1, 0));
}

int prefill_quota(int max_batched_tokens, int num_decodes, int most) {
  const int left = max_batched_tokens - num_decodes;
  if (num_decodes == 0) return left;
  const int quota = std::min(max_batched_tokens / 4, std::max(most, 2 * kBlockSize));
  return std::clamp(quota, std::min(kBlockSize, left), std::max(left, 0));
}

PlanRow make_row(const Sequence& sequence, int num_tokens) {
  PlanRow row{
      .sequence = &sequence, .first_position = sequence.num_computed, .num_tokens = num_tokens};
  const int end = sequence.num_computed + num_tokens;
  if (sequence.kind == SequenceKind::kGenerate) {
    row.num_logits = end == sequence.length() ? 1 : 0;
  } else {
    const int next = sequence.num_prompt + sequence.num_emitted;  // logits of next - 1 come first
    row.num_logits = std::max(0, end - std::max(next - 1, sequence.num_computed));
  }
  return row;
}

}  // namespace lmtp::scheduler

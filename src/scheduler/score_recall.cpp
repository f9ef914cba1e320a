#include "lmtp/scheduler/score_recall.h"

#include <cstddef>
#include <span>
#include <utility>

namespace lmtp::scheduler {

void ScoreRecall::keep(Sequence& sequence, float logprob) {
  const int end = sequence.num_prompt + sequence.num_emitted;
  if (end != sequence.scores_end + 1) flush(sequence);
  sequence.new_scores[static_cast<std::size_t>(sequence.num_new_scores++)] = logprob;
  sequence.scores_end = end;
  if (end % kBlockSize == 0) flush(sequence);
}

void ScoreRecall::flush(Sequence& sequence) {
  const auto count = static_cast<std::size_t>(std::exchange(sequence.num_new_scores, 0));
  if (count == 0) return;
  const auto end = static_cast<std::size_t>(sequence.scores_end);
  cache_.add(sequence.adapter, std::span<const TokenId>(sequence.tokens).first(end),
             std::span<const float>(sequence.new_scores).first(count), sequence.score_place);
}

std::optional<float> ScoreRecall::next(Sequence& sequence) {
  if (!may_recall(sequence)) return std::nullopt;
  sequence.awaits_recall = num_left_ == 0;
  is_lacking_ |= sequence.awaits_recall;
  if (sequence.awaits_recall) return std::nullopt;
  const int next = sequence.num_prompt + sequence.num_emitted;
  const std::optional<float> logprob = cache_.find(
      sequence.adapter,
      std::span<const TokenId>(sequence.tokens).first(static_cast<std::size_t>(next) + 1),
      sequence.score_place);
  num_left_ -= logprob ? 1 : 0;
  return logprob;
}

bool ScoreRecall::needs_round() { return std::exchange(has_new_, false) || is_lacking_; }

}  // namespace lmtp::scheduler

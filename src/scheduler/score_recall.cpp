#include "lmtp/scheduler/score_recall.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lmtp::scheduler {

void ScoreRecall::keep(Sequence& sequence, float logprob, const TokenLogprobs& listed) {
  const int end = sequence.num_prompt + sequence.num_emitted;
  if (end != sequence.scores_end + 1) flush(sequence);
  if (listed != nullptr && sequence.kind == RequestKind::kScore) keep_listed(sequence, *listed);
  sequence.new_scores[static_cast<std::size_t>(sequence.num_new_scores++)] = logprob;
  sequence.scores_end = end;
  if (end % kBlockSize == 0) flush(sequence);
}

// Each as if it were the sequence's token there: the place lies before it, and is that of all.
void ScoreRecall::keep_listed(Sequence& sequence, std::span<const TokenLogprob> listed) {
  const auto at = static_cast<std::size_t>(sequence.num_prompt + sequence.num_emitted) - 1;
  const TokenId token = sequence.tokens[at];
  for (const TokenLogprob& one : listed) {
    sequence.tokens[at] = one.token;
    cache_.add(sequence.name_space, std::span<const TokenId>(sequence.tokens).first(at + 1),
               {&one.logprob, 1}, sequence.score_place);
  }
  sequence.tokens[at] = token;
}

void ScoreRecall::flush(Sequence& sequence) {
  const auto count = static_cast<std::size_t>(std::exchange(sequence.num_new_scores, 0));
  if (count == 0) return;
  const auto end = static_cast<std::size_t>(sequence.scores_end);
  cache_.add(sequence.name_space, std::span<const TokenId>(sequence.tokens).first(end),
             std::span<const float>(sequence.new_scores).first(count), sequence.score_place);
}

std::optional<TokenResult> ScoreRecall::next(Sequence& sequence) {
  if (!may_recall(sequence)) return std::nullopt;
  sequence.awaits_recall = num_left_ == 0;
  is_lacking_ |= sequence.awaits_recall;
  if (sequence.awaits_recall) return std::nullopt;
  const int num_known = sequence.num_prompt + sequence.num_emitted;
  const auto next = static_cast<std::size_t>(num_known);
  const std::optional<float> logprob =
      cache_.find(sequence.name_space, std::span<const TokenId>(sequence.tokens).first(next + 1),
                  sequence.score_place);
  if (!logprob) return std::nullopt;
  TokenResult known{sequence.tokens[next], *logprob, {}};
  int num_given = 1;
  if (const auto& ids = sequence.params.logprob_token_ids; ids != nullptr) {
    known.listed_logprobs = find_listed(sequence, next);
    if (known.listed_logprobs == nullptr) return std::nullopt;
    num_given += static_cast<int>(ids->size());
  }
  num_left_ -= std::min(num_left_, num_given);
  return known;
}

// Null: one of them is not known. next: the token in whose place they stand.
TokenLogprobs ScoreRecall::find_listed(Sequence& sequence, std::size_t next) {
  const std::vector<TokenId>& ids = *sequence.params.logprob_token_ids;
  auto listed = std::make_shared<std::vector<TokenLogprob>>();
  listed->reserve(ids.size());
  const TokenId token = sequence.tokens[next];
  for (const TokenId id : ids) {
    sequence.tokens[next] = id;
    const auto logprob =
        cache_.find(sequence.name_space, std::span<const TokenId>(sequence.tokens).first(next + 1),
                    sequence.score_place);
    if (!logprob) break;
    listed->push_back({id, *logprob});
  }
  sequence.tokens[next] = token;
  return listed->size() == ids.size() ? std::move(listed) : nullptr;
}

bool ScoreRecall::needs_round() { return std::exchange(has_new_, false) || is_lacking_; }

}  // namespace lmtp::scheduler

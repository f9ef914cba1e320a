// The part of Scheduler that keeps log probabilities, and gives to a Score those that are known.
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::scheduler {

// Of the token that was reported last. REQUIRES: it is of the logits as the model gave them.
void Scheduler::keep_score(Sequence& sequence, float logprob) {
  const int end = sequence.num_prompt + sequence.num_emitted;
  if (end != sequence.scores_end + 1) add_scores(sequence);
  sequence.new_scores[static_cast<std::size_t>(sequence.num_new_scores++)] = logprob;
  sequence.scores_end = end;
  if (end % kBlockSize == 0) add_scores(sequence);
}

void Scheduler::add_scores(Sequence& sequence) {
  const auto count = static_cast<std::size_t>(std::exchange(sequence.num_new_scores, 0));
  if (count == 0) return;
  const auto end = static_cast<std::size_t>(sequence.scores_end);
  score_cache_.add(sequence.adapter, std::span<const TokenId>(sequence.tokens).first(end),
                   std::span<const float>(sequence.new_scores).first(count), sequence.score_place);
}

// Alternatives are not kept: a Score that asks for them is computed.
bool Scheduler::may_recall(const Sequence& sequence) const {
  return score_cache_.is_on() && sequence.kind == RequestKind::kScore &&
         sequence.params.top_logprobs == 0;
}

// Gives a Score that does not run what is known, up to the first token that is not, and as much as
// may be given. True: that was all, and it has ended.
bool Scheduler::recall(Sequence& sequence) {
  if (!may_recall(sequence)) return false;
  sequence.awaits_recall = false;
  const std::span<const TokenId> tokens(sequence.tokens);
  for (;;) {
    if (recalls_left_ == 0) {
      sequence.awaits_recall = true;
      lacks_recalls_ = true;
      return false;
    }
    const int next = sequence.num_prompt + sequence.num_emitted;
    const auto at = static_cast<std::size_t>(next);
    const std::optional<float> logprob =
        score_cache_.find(sequence.adapter, tokens.first(at + 1), sequence.score_place);
    if (!logprob) return false;
    --recalls_left_;
    ++counters_.num_cached_scores;
    TokenEvent entry = next_entry(sequence, TokenResult{tokens[at], *logprob, {}});
    const bool ends = entry.finish_reason != FinishReason::kNone;
    events_.push_back({sequence.key, std::move(entry)});
    if (!ends) continue;
    if (!sequence.is_returning) {  // else its admission counted them
      counters_.num_prompt_tokens += sequence.num_prompt;
      counters_.num_cached_tokens += sequence.num_prompt;
    }
    finish(sequence);
    return true;
  }
}

// What a Score has just computed may be all that another one waits for: a burst of equal ones
// computes it once. So may be what could not be given before.
void Scheduler::recall_waiting() {
  lacks_recalls_ = false;
  for (std::size_t i = 0; i < waiting_.size();) {
    Sequence& sequence = *waiting_[i];
    const int num_emitted = sequence.num_emitted;
    if (!sequence.is_held && recall(sequence)) continue;  // it waits no more
    if (sequence.num_emitted > num_emitted) match_prefix(sequence);
    ++i;
  }
}

std::vector<SchedulerEvent>& Scheduler::recall_more() {
  LMTP_CHECK(!in_step_);
  events_.clear();
  recall_waiting();
  return events_;
}

}  // namespace lmtp::scheduler

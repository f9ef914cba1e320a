// ScoreRecall: keeps the log probabilities that streams report, and gives those that are known to
// the Scores that ask for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "lmtp/cache/score_cache.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// Only a limited number is given at a time (set_limit()). A Score that might have got more awaits
// them (Sequence::awaits_recall), and is not admitted until the next round.
//
// Owner: the Scheduler; its thread. Takes no memory after its construction, but for the
// tokens that a Score lists.
class ScoreRecall {
 public:
  // REQUIRES: cache_bytes >= 0; with 0 nothing is kept.
  explicit ScoreRecall(std::int64_t cache_bytes) : cache_(cache_bytes) {}

  // Whether the tokens of a row that is being committed are to be kept. The scores of a Score may
  // be what another one waits for.
  bool begin_row(const Sequence& sequence) {
    const bool keeps = cache_.is_on() && sequence.params.reports_raw();
    has_new_ |= keeps && sequence.kind == RequestKind::kScore;
    return keeps;
  }
  // Keeps the log probability of the token that was reported last, with the others of its block;
  // of a Score those of the tokens that it lists as well. REQUIRES: begin_row() returned true.
  void keep(Sequence& sequence, float logprob, const TokenLogprobs& listed = nullptr);
  // Writes what is kept of the sequence so far to the cache, where others find it.
  void flush(Sequence& sequence);

  // Alternatives are not kept, so a Score that asks for them is computed.
  bool may_recall(const Sequence& sequence) const {
    return cache_.is_on() && sequence.kind == RequestKind::kScore &&
           sequence.params.top_logprobs == 0 && !sequence.params.measures.any();
  }
  // The sequence's next token; nullopt where a log probability of it or of one that is listed is
  // not known, or not to be recalled, or where the limit is reached: then the sequence awaits it.
  std::optional<TokenResult> next(Sequence& sequence);

  // The number of tokens, those listed among them, that next() gives from here on, but for the last
  // one's. REQUIRES: num_scores >= 0.
  void set_limit(int num_scores) { num_left_ = num_scores; }
  // Whether a Score awaits more than the limit allowed.
  bool is_lacking() const { return is_lacking_; }
  // Whether waiting Scores may find more than in the last round: a Score has computed some, or the
  // limit ended it. Resets the first.
  bool needs_round();
  // All waiting Scores ask again after this.
  void begin_round() { is_lacking_ = false; }

  const cache::ScoreCache& cache() const { return cache_; }

 private:
  TokenLogprobs find_listed(Sequence& sequence, std::size_t next);
  void keep_listed(Sequence& sequence, std::span<const TokenLogprob> listed);

  cache::ScoreCache cache_;
  int num_left_ = std::numeric_limits<int>::max();
  bool is_lacking_ = false;
  bool has_new_ = false;  // scores of a Score since the last needs_round()
};

}  // namespace lmtp::scheduler

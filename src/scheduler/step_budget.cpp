#include "lmtp/scheduler/step_budget.h"

#include <algorithm>
#include <cmath>

#include "sequence_rows.h"

namespace lmtp::scheduler {

namespace {

// Tokens of a step besides its decodes.
struct TokenShares {
  int prefill = 0;
  int cached = 0;  // for almost cached sequences
};

// If both kinds want tokens, neither gets none (a single token goes to the prefills).
TokenShares divide_step(const BatchLimits& batch, int num_decodes, const StepLimits& limits,
                        TokenShares wanted) {
  constexpr int kAlways = 2 * kBlockSize;
  int left = batch.max_tokens - num_decodes;
  if (batch.max_prefill_tokens > 0) left = std::min(left, batch.max_prefill_tokens);
  if (num_decodes == 0) left = std::min(left, std::max(limits.alone, kAlways));
  TokenShares most{left, left};
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

}  // namespace

void StepBudget::begin(const StepLimits& limits, int num_waiting, int num_running) {
  fetched_max_ = limits.fetched;
  num_fetched_ = 0;
  holds_back_ = false;
  if (!options_.batch.pacing || num_running == 0) return;
  const AdmissionPacing& pacing = *options_.batch.pacing;
  holds_back_ = steps_since_prefill_ < pacing.max_waiting_steps &&
                num_waiting < std::floor(pacing.waiting_served_ratio * num_running);
}

void StepBudget::divide(const StepLimits& limits, int num_decodes, Sequences waiting,
                        Sequences running, std::int64_t step) {
  const int most = options_.batch.max_tokens;
  TokenShares wanted;
  shortest_prefill_ = StepLimits::kAny;
  for (const Sequence* s : running) {
    if (!is_prefill(*s, step)) continue;
    wanted.prefill = std::min(most, wanted.prefill + num_remaining(*s));
    shortest_prefill_ = std::min(shortest_prefill_, num_remaining(*s));
  }
  const int wanted_by_running = wanted.prefill;
  const bool has_place = static_cast<int>(running.size()) < options_.batch.rows_max();
  for (const Sequence* s : waiting) {
    if (!has_place) break;
    if (s->is_held) continue;
    const int missing = num_missing(*s);
    if (is_held_back(*s, missing)) continue;
    int& sum = is_small(missing) ? wanted.cached : wanted.prefill;
    sum = std::min(most, sum + missing);
  }
  const TokenShares shares = divide_step(options_.batch, num_decodes, limits, wanted);
  prefill_left_ = shares.prefill;
  cached_left_ = shares.cached;
  prefill_spare_ = prefill_left_ - wanted_by_running;
  prefill_yield_ = prefill_left_ / 2;
}

// Returning sequences have been let in before, and claimants have waited long enough.
bool StepBudget::is_held_back(const Sequence& sequence, int num_missing) const {
  return holds_back_ && !is_small(num_missing) && !sequence.is_returning &&
         !shares_.is_claimant(sequence);
}

int StepBudget::spare_for(int num_missing) const {
  return std::max(prefill_spare_, num_missing < shortest_prefill_ ? prefill_yield_ : 0);
}

bool StepBudget::may_use_both_budgets(const Sequence& sequence, int num_missing) const {
  return has_crowd_ && sequence.account->num_running == 0 && !is_small(num_missing) &&
         num_missing > spare_for(num_missing) &&
         num_missing <= std::max({prefill_spare_, prefill_yield_, 0}) + cached_left_;
}

int StepBudget::tokens_for(const Sequence& sequence, int num_missing, Sequences running) const {
  if (is_held_back(sequence, num_missing)) return 0;
  const bool small = is_small(num_missing);
  const bool claims = shares_.is_claimant(sequence);
  int budget = small ? cached_left_ : prefill_left_;
  if (!small && !claims && !sequence.is_returning) budget = spare_for(num_missing);
  if (may_use_both_budgets(sequence, num_missing)) budget = num_missing;
  if (claims || sequence.is_returning) {
    budget = std::max(budget, std::min(kBlockSize, small ? prefill_left_ : cached_left_));
  }
  if (claims) {
    budget = std::min(budget, cached_left_ + prefill_left_ + 1 - shares_.num_waiting_claimants());
  }
  const auto is_held = [](const Sequence* s) { return s->is_held; };
  if (budget < 1 && std::ranges::all_of(running, is_held)) budget = cached_left_ + prefill_left_;
  if (options_.debug.max_chunk_tokens > 0) {
    budget = std::min(budget, options_.debug.max_chunk_tokens);
  }
  return std::min(
      {num_missing, budget, num_alike(sequence, sequence.num_to_compute() - num_missing)});
}

bool StepBudget::spends_cached_first(const Sequence& sequence, int num_missing) const {
  return is_small(num_missing) || may_use_both_budgets(sequence, num_missing);
}

void StepBudget::spend(int num_missing, int num_tokens, bool cached_first) {
  int& own = cached_first ? cached_left_ : prefill_left_;
  int& other = cached_first ? prefill_left_ : cached_left_;
  const int of_own = std::min(own, num_tokens);
  const int before = prefill_left_;
  own -= of_own;
  other -= num_tokens - of_own;
  prefill_spare_ -= before - prefill_left_;
  prefill_yield_ -= before - prefill_left_;
  if (!is_small(num_missing)) steps_since_prefill_ = 0;
}

int StepBudget::chunk(const Sequence& sequence, int most) const {
  const int max_chunk = options_.debug.max_chunk_tokens;
  return std::min({num_remaining(sequence), most, max_chunk > 0 ? max_chunk : StepLimits::kAny,
                   num_alike(sequence, sequence.num_computed_ahead())});
}

int StepBudget::most_for_oldest(Sequences younger, std::int64_t step) const {
  int wanted = 0;
  for (const Sequence* s : younger) {
    if (wanted >= prefill_left_) break;
    if (is_prefill(*s, step)) wanted += std::min(num_remaining(*s), prefill_left_);
  }
  return prefill_left_ - std::clamp(wanted, 0, std::max(prefill_yield_, 0));
}

bool StepBudget::may_fetch(const Sequence& sequence, int num_blocks, std::int64_t step) const {
  return num_fetched_ == 0 || num_blocks == 0 || num_blocks <= fetched_max_ - num_fetched_ ||
         shares_.is_claimant(sequence) || has_aged(sequence, step);
}

}  // namespace lmtp::scheduler

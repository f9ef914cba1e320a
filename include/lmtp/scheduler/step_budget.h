// StepBudget: how many tokens a step computes besides its decodes, and for whom.
#pragma once

#include <cstdint>
#include <span>

#include "lmtp/scheduler/fair_shares.h"
#include "lmtp/scheduler/options.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// What decodes leave of a step is divided in two by divide(): a budget for prefills, running and
// waiting, and one for waiting sequences that are almost cached (at most a block to compute). If
// both kinds want tokens, neither gets none. Then admissions take from both:
//
//   a prompt                                what running prefills do not need; or half of their
//                                           budget if it is shorter than all of them
//   an almost cached sequence               the budget for almost cached ones
//   a prompt of a client that runs nothing  both, in a crowd, if they suffice for all of it
//   returning sequences and claimants       up to a block of the other kind's, if their own is
//                                           empty; a claimant leaves a token to each other one
//   any, if all that runs is held           both, so that a wrong hint never makes an empty step
//
// What is left of the prefills' budget goes to running prefills, at least half of it to the oldest.
//
// It also paces: with BatchLimits::pacing, prompts are held back until so many wait, or so many
// steps have passed (as TGI's router does, so that several prompts delay running streams once). And
// it bounds what a step fetches from the host.
//
// Owner: the Scheduler; its thread. `options` and `shares` outlive it. A sequence is a waiting one
// unless said otherwise; num_missing is what it has to compute if it is admitted.
class StepBudget {
 public:
  using Sequences = std::span<Sequence* const>;

  StepBudget(const SchedulerOptions& options, const FairShares& shares)
      : options_(options), shares_(shares) {}

  // A plan begins. Not of a step ahead, which admits nothing.
  void begin(const StepLimits& limits, int num_waiting, int num_running);
  // A step was committed.
  void end_step() { ++steps_since_prefill_; }

  // Divides what num_decodes tokens leave of step `step`, by what these want.
  void divide(const StepLimits& limits, int num_decodes, Sequences waiting, Sequences running,
              std::int64_t step);
  // Whether some client runs more than its part, while another may preempt.
  void set_crowd(bool has_crowd) { has_crowd_ = has_crowd; }
  bool has_crowd() const { return has_crowd_; }

  // Whether anything can still be admitted.
  bool has_any() const { return prefill_left_ + cached_left_ >= 1; }
  // Tokens that the sequence would get in this step; < 1: it cannot be admitted now.
  int tokens_for(const Sequence& sequence, int num_missing, Sequences running) const;
  // Whether an admission spends of the budget for almost cached sequences first, else of the
  // prefills'. To be asked before the sequence counts as running.
  bool spends_cached_first(const Sequence& sequence, int num_missing) const;
  // REQUIRES: num_tokens is at most what tokens_for() said.
  void spend(int num_missing, int num_tokens, bool cached_first);

  // The next tokens of a running prefill, at most `most`.
  int chunk(const Sequence& sequence, int most) const;
  // What the oldest running prefill may have, so that those after it in `running` get up to half.
  int most_for_oldest(Sequences younger, std::int64_t step) const;
  int prefill_left() const { return prefill_left_; }
  void spend_prefill(int num_tokens) { prefill_left_ -= num_tokens; }

  // Whether the sequence may bring so many blocks from the host. One long prefix may come at once;
  // others' wait for the next step, but not those of claimants, nor of those that waited for long.
  bool may_fetch(const Sequence& sequence, int num_blocks, std::int64_t step) const;
  void count_fetched(int num_blocks) { num_fetched_ += num_blocks; }

 private:
  bool is_held_back(const Sequence& sequence, int num_missing) const;
  int spare_for(int num_missing) const;
  bool may_use_both_budgets(const Sequence& sequence, int num_missing) const;

  const SchedulerOptions& options_;
  const FairShares& shares_;
  int prefill_left_ = 0;  // tokens that may still be planned for prefills
  int cached_left_ = 0;   // the same for almost cached sequences
  // The parts of prefill_left_ for prompts that wait: what no running prefill needs, and what the
  // oldest one leaves to those that are shorter than all running ones.
  int prefill_spare_ = 0;
  int prefill_yield_ = 0;
  int shortest_prefill_ = 0;  // of the running ones
  bool has_crowd_ = false;
  bool holds_back_ = false;               // by pacing
  std::int64_t steps_since_prefill_ = 0;  // since one of more than a block was admitted
  int fetched_max_ = 0;                   // StepLimits::fetched
  int num_fetched_ = 0;                   // blocks, in this step
};

}  // namespace lmtp::scheduler

// WaitingLine: the sequences that wait, and the order in which they are admitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/scheduler/fair_shares.h"
#include "lmtp/scheduler/kept_places.h"
#include "lmtp/scheduler/options.h"
#include "lmtp/scheduler/score_recall.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_budget.h"

namespace lmtp::scheduler {

// The order of admission:
//
// 1. claimants (FairShares);
// 2. in a crowd, that is if some client runs more than its part: sequences of clients that run
//    nothing. They come before the others in every other step at most, and after them in those
//    between, so that the others have their turn, too. They neither wait for (3) nor for what does
//    not fit; where a sequence has waited long for blocks these are such sequences alone;
// 3. sequences that return after a preemption or an edit, and follow-ups: prompts that go on with a
//    stream that ended at most 50 ms before (KeptPlaces), while their client runs less than its
//    part and none that has not run has waited long for blocks;
// 4. all others: first the client that was served least, counting what this step gives it. Within a
//    client come the lowest priorities; of equal ones its connections take turns, and the one that
//    runs least begins. Within a connection come sequences that have waited for 256 steps, then the
//    longest cached prefix, then the oldest.
//
// A priority is among the sequences of one client that have not run yet: these share out the places
// that the client has in (1), (2) and (4) whatever their priorities. At most three in a row are
// admitted before the client's oldest, which comes next.
//
// A sequence that gets no tokens in this step, or that waits for another one's prefix, scores or
// adapter, is passed over. The first one that does not fit ends the admissions, except those of
// (2). One that did not fit waits long for blocks after 256 steps, while its client runs no more
// than its part, or, if the sequence has never run, nothing.
//
// Owner: the Scheduler; its thread. What the constructor is given outlives it; `running` are the
// running sequences, in the order of their admission. `step` is the number of the last plan.
class WaitingLine {
 public:
  enum class Admission {
    kAdmitted,
    kDeferred,   // others may be admitted
    kRefused,    // none after it
    kDoesNotFit  // none after it, and until something ends the next step would say the same
  };
  // Who admits: an admission takes all that the sequence needs, or nothing.
  class Host {
   public:
    // Calls remove() if it returns kAdmitted.
    virtual Admission admit(Sequence& sequence) = 0;

   protected:
    ~Host() = default;
  };

  WaitingLine(const SchedulerOptions& options, const std::vector<Sequence*>& running,
              const cache::PrefixCache& prefixes, const FairShares& shares, StepBudget& budget,
              const ScoreRecall& scores)
      : options_(options),
        running_(running),
        prefixes_(prefixes),
        shares_(shares),
        budget_(budget),
        scores_(scores) {}

  // The sequence waits from now on. REQUIRES: it has an account.
  void add(Sequence& sequence, std::int64_t step);
  // Nothing happens where it does not wait.
  void remove(const Sequence& sequence);
  const std::vector<Sequence*>& sequences() const { return waiting_; }

  // When what the next commit() gives was computed; never goes back.
  void set_time(KeptPlaces::Clock::time_point now) { now_ = now; }
  // A stream has ended, and its client may go on with it.
  void keep_place(const Sequence& sequence);
  // Sets Sequence::keeps_place: a new sequence goes on with such a stream. Each is found once.
  void take_place(Sequence& sequence);

  // Looks for the longest cached prefix, and notes how long it is (Sequence::num_cached_hint).
  cache::PrefixMatch match(Sequence& sequence) const;
  // Other sequences compute and evict blocks, and the hint decides from which budget a sequence is
  // admitted: so a few are matched again at the start of each plan.
  void refresh_hints();
  // Whether a running sequence is about to compute so much of this prefix, beyond what is cached,
  // that it is cheaper to wait: a burst of requests over one prefix computes it once. Another Score
  // gives its log probabilities, too.
  bool another_computes_prefix(const Sequence& sequence, int num_matched) const;

  // Sequences that may be admitted, the best last, without regard to what their clients were
  // served.
  std::vector<Sequence*> candidates(std::int64_t step) const;
  // The order in which all of them would be admitted if nothing else came.
  std::vector<StreamKey> order(std::int64_t step) const;

  // A plan begins. Then close() where it preempted a sequence for want of blocks: only those of (2)
  // are admitted in this step.
  void begin() { is_closed_ = has_refused_ = false; }
  void close() { is_closed_ = true; }
  // Admits all that may be in this step. REQUIRES: the budget was divided.
  void admit_all(Host& host, std::int64_t step);
  // Something has changed, so that what did not fit may do so now.
  void forget_refusal() { has_refused_ = false; }
  // Whether none that came before it has waited long for blocks, whose client runs nothing.
  bool may_pass_others(const Sequence& sequence, std::int64_t step) const;
  // Whether step `step` may be planned without looking at what waits.
  bool may_be_passed_over(std::int64_t step) const;

 private:
  using Queues = std::unordered_map<ConnectionId, std::vector<Sequence*>>;  // by client, best last

  bool is_full() const;
  bool has_place() const { return budget_.has_any() && !is_full(); }
  bool may_admit() const { return !is_closed_ && has_place(); }
  int part() const { return shares_.part(static_cast<int>(running_.size())); }
  int tokens_for(const Sequence& sequence) const;
  bool precedes_others(const Sequence& sequence) const;
  bool waits_long(const Sequence& sequence, std::int64_t step) const;
  Admission admit(Host& host, Sequence& sequence);
  bool admit_unserved_clients(Host& host, std::int64_t step);
  void admit_in_order(Host& host, std::int64_t step);
  void admit_by_clients(Host& host, const std::vector<Sequence*>& order);
  Queues by_client(const std::vector<Sequence*>& order) const;
  void apply_priorities(std::vector<Sequence*>& order) const;

  const SchedulerOptions& options_;
  const std::vector<Sequence*>& running_;
  const cache::PrefixCache& prefixes_;
  const FairShares& shares_;
  StepBudget& budget_;
  const ScoreRecall& scores_;
  std::vector<Sequence*> waiting_;
  KeptPlaces kept_places_;
  KeptPlaces::Clock::time_point now_;
  std::size_t next_hint_ = 0;              // index in waiting_ of the next hint to refresh
  bool is_closed_ = false;                 // a sequence was preempted, or did not fit
  bool has_refused_ = false;               // what waits does not fit, and nothing has changed since
  bool unserved_waits_long_ = false;       // one that has not run, for blocks; in the last one
  bool unserved_came_first_ = false;       // in the last admit_all()
  bool unserved_clients_waiting_ = false;  // for tokens, or for others' prefix
};

}  // namespace lmtp::scheduler

// FairShares: what each client has been served, and for which clients others' sequences are
// preempted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/scheduler/sequence.h"

namespace lmtp::scheduler {

// A client is an API key, or a connection without one (Sequence::share). Its part of the running
// sequences is their number divided by the number of clients, at least one.
//
// All accounts are on one clock, the virtual time of weighted fair queueing (Demers et al. 1989).
// It moves by each client's part of what is served. A client that is new or comes back starts no
// lower than the clock: it has no credit for the time before, and a debt only for what it took
// while others waited. So whoever comes later starts above those who wait, and each has its turn,
// however many come.
//
// A claimant is a waiting sequence for which a plan preempted others, or which has waited so long
// that it is admitted first. The claimants of a plan are forgotten at its end.
//
// Owner: the Scheduler; its thread. Sequences outlive their account, and claimants the plan.
class FairShares {
 public:
  // Each claimant gets a token in any step: two blocks of tokens are always allowed.
  static constexpr std::size_t kClaimantsMax = std::size_t{2} * kBlockSize;

  // may_preempt: nobody claims otherwise.
  explicit FairShares(bool may_preempt) : may_preempt_(may_preempt) {}

  // Sets Sequence::account. leave() takes it away; it is for sequences that end or are suspended.
  void join(Sequence& sequence);
  void leave(Sequence& sequence);
  // REQUIRES: an account of these shares; num_tokens >= 0.
  void serve(ClientAccount& account, int num_tokens);

  // Sequences that each client may run. REQUIRES: there is a client.
  int part(int num_running) const;
  // Whether a client runs more than its part. Else nothing is preempted, however little others run.
  bool has_crowd(int num_running) const;
  bool may_preempt() const { return may_preempt_; }

  // Whether step `step` looks for claimants that run something already.
  static bool is_claim_step(std::int64_t step);
  // Whether the sequence may claim in this step: its client runs nothing and it has just come, or
  // it has waited for long and this is a claim step. REQUIRES: it waits, and has an account.
  bool may_claim(const Sequence& sequence, std::int64_t step) const;
  static bool has_waited_long(const Sequence& sequence, std::int64_t step);

  // Whether a running sequence may be preempted for another client that runs less than `part`.
  static bool may_be_victim(const Sequence& sequence, int part, std::int64_t step);
  // The youngest possible victim of the client that runs most; null where there is none.
  static Sequence* next_victim(std::span<Sequence* const> running,
                               const std::vector<Sequence*>& victims, int part, std::int64_t step);
  // The victim was preempted: it is not preempted for another client again for some time.
  static void protect(Sequence& victim, std::int64_t step);

  void add_claimant(Sequence& sequence) { claimants_.push_back(&sequence); }
  void clear_claimants() { claimants_.clear(); }
  const std::vector<Sequence*>& claimants() const { return claimants_; }
  bool is_claimant(const Sequence& sequence) const;
  int num_waiting_claimants() const;

 private:
  const bool may_preempt_;
  std::unordered_map<ConnectionId, ClientAccount> accounts_;    // of clients with sequences
  std::unordered_map<ConnectionId, std::int64_t> idle_served_;  // of others, where above the clock
  std::int64_t clock_ = 0;                                      // where accounts begin
  std::int64_t num_unclocked_ = 0;  // tokens served that have not moved it yet
  std::vector<Sequence*> claimants_;
};

}  // namespace lmtp::scheduler

#include "lmtp/scheduler/fair_shares.h"

#include <algorithm>
#include <utility>

namespace lmtp::scheduler {
namespace {

// Accounts of clients without sequences that are kept.
constexpr std::size_t kIdleAccountsMax = 4096;
// A sequence that has waited for kPatienceSteps may have others preempted; checked every
// kClaimInterval steps. Two checks fit into the 64 steps that docs/scheduling.md promises.
constexpr std::int64_t kPatienceSteps = 32;
constexpr std::int64_t kClaimInterval = 16;
// One whose client runs nothing need not wait, but is looked at in so many steps before those.
constexpr std::int64_t kEagerSteps = 2;
// For how long a sequence so preempted is not preempted in this way again.
constexpr std::int64_t kProtectedSteps = 256;

}  // namespace

void FairShares::join(Sequence& sequence) {
  const ConnectionId id = sequence.share;
  const auto [joined, is_new] = accounts_.try_emplace(id);
  ClientAccount& account = joined->second;
  sequence.account = &account;
  ++account.num_sequences;
  if (!is_new) return;
  std::int64_t least = -1;
  for (const auto& [other_id, other] : accounts_) {
    if (other_id != id && (least < 0 || other.served < least)) least = other.served;
  }
  clock_ = std::max(clock_, least);
  account.served = clock_;
  if (const auto idle = idle_served_.find(id); idle != idle_served_.end()) {
    account.served = std::max(account.served, idle->second);
    idle_served_.erase(idle);
  }
}

void FairShares::serve(ClientAccount& account, int num_tokens) {
  account.served += num_tokens;
  num_unclocked_ += num_tokens;
  const auto num_clients = static_cast<std::int64_t>(accounts_.size());
  clock_ += num_unclocked_ / num_clients;
  num_unclocked_ %= num_clients;
}

// At the limit half of the idle accounts are dropped at once, so that the scan is rare.
void FairShares::leave(Sequence& sequence) {
  const ConnectionId id = sequence.share;
  ClientAccount& account = *std::exchange(sequence.account, nullptr);
  if (--account.num_sequences > 0) return;
  const std::int64_t served = account.served;
  accounts_.erase(id);
  if (served <= clock_) return;
  if (idle_served_.size() >= kIdleAccountsMax) {
    std::erase_if(idle_served_, [this](const auto& idle) {
      return idle.second <= clock_ || idle_served_.size() > kIdleAccountsMax / 2;
    });
  }
  idle_served_[id] = served;
}

int FairShares::part(int num_running) const {
  return std::max(1, num_running / static_cast<int>(accounts_.size()));
}

bool FairShares::has_crowd(int num_running) const {
  return std::ranges::any_of(accounts_, [most = part(num_running)](const auto& account) {
    return account.second.num_running > most;
  });
}

bool FairShares::is_claim_step(std::int64_t step) { return step % kClaimInterval == 0; }

bool FairShares::has_waited_long(const Sequence& sequence, std::int64_t step) {
  return step - sequence.waiting_since >= kPatienceSteps;
}

bool FairShares::may_claim(const Sequence& sequence, std::int64_t step) const {
  if (sequence.is_held || !may_preempt_) return false;
  const bool has_just_come = step - sequence.waiting_since <= kEagerSteps;
  if (sequence.account->num_running == 0 && has_just_come) return true;
  return is_claim_step(step) && has_waited_long(sequence, step);
}

bool FairShares::may_be_victim(const Sequence& sequence, int part, std::int64_t step) {
  return sequence.account->num_running > part && step >= sequence.protected_until;
}

Sequence* FairShares::next_victim(std::span<Sequence* const> running,
                                  const std::vector<Sequence*>& victims, int part,
                                  std::int64_t step) {
  std::unordered_map<ConnectionId, int> num_victims;
  for (const Sequence* s : victims) ++num_victims[s->share];
  Sequence* best = nullptr;
  int most = part;
  for (Sequence* s : running) {
    const int held = s->account->num_running - num_victims[s->share];
    if (step < s->protected_until || std::ranges::find(victims, s) != victims.end()) continue;
    if (held < most || (held == most && (best == nullptr || s->id < best->id))) continue;
    best = s;
    most = held;
  }
  return best;
}

void FairShares::protect(Sequence& victim, std::int64_t step) {
  victim.protected_until = step + kProtectedSteps;
}

bool FairShares::is_claimant(const Sequence& sequence) const {
  return std::ranges::find(claimants_, &sequence) != claimants_.end();
}

int FairShares::num_waiting_claimants() const {
  return static_cast<int>(std::ranges::count(claimants_, SequenceStatus::kWaiting,
                                             [](const Sequence* s) { return s->status; }));
}

}  // namespace lmtp::scheduler

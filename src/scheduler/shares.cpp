// The part of Scheduler that is fair between keys, or connections where there are none: what each
// share has been served, and which sequences are preempted for another share.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lmtp/scheduler/scheduler.h"

namespace lmtp::scheduler {
namespace {

// Shares without streams that are kept.
constexpr std::size_t kMaxIdleShares = 4096;
// A sequence that has waited for kPatienceSteps may have others preempted; checked every
// kClaimInterval steps. Two checks fit into the 64 steps that docs/scheduling.md promises.
constexpr std::int64_t kPatienceSteps = 32;
constexpr std::int64_t kClaimInterval = 16;
// Each gets a token in any step: two blocks of tokens are always allowed.
constexpr std::size_t kClaimsMax = std::size_t{2} * kBlockSize;
// One whose share runs nothing need not wait, but is looked at in so many steps before those.
constexpr std::int64_t kEagerSteps = 2;
// For how long a sequence so preempted is not preempted in this way again.
constexpr std::int64_t kProtectedSteps = 256;

}  // namespace

// A share that is new or comes back starts no lower than the clock: it has no credit for the
// time before, and a debt only for what it took while others waited.
void Scheduler::join_share(Sequence& sequence) {
  const ConnectionId id = sequence.share;
  const auto [joined, is_new] = shares_.try_emplace(id);
  Share& share = joined->second;
  sequence.share_state = &share;
  ++share.num_sequences;
  if (!is_new) return;
  std::int64_t least = -1;
  for (const auto& [other_id, other] : shares_) {
    if (other_id != id && (least < 0 || other.served < least)) least = other.served;
  }
  served_clock_ = std::max(served_clock_, least);
  share.served = served_clock_;
  if (const auto idle = idle_served_.find(id); idle != idle_served_.end()) {
    share.served = std::max(share.served, idle->second);
    idle_served_.erase(idle);
  }
}

// What one of them is served moves the clock on by what each would get of it (the virtual time of
// weighted fair queueing, Demers et al. 1989), so that those who come later start above those who
// wait: however many come, each has its turn.
void Scheduler::serve(Share& share, int num_tokens) {
  share.served += num_tokens;
  num_unclocked_ += num_tokens;
  const auto num_shares = static_cast<std::int64_t>(shares_.size());
  served_clock_ += num_unclocked_ / num_shares;
  num_unclocked_ %= num_shares;
}

// At the limit half of the idle shares are dropped at once, so that the scan is rare.
void Scheduler::leave_share(Sequence& sequence) {
  const ConnectionId id = sequence.share;
  Share& share = *std::exchange(sequence.share_state, nullptr);
  if (--share.num_sequences > 0) return;
  const std::int64_t served = share.served;
  shares_.erase(id);
  if (served <= served_clock_) return;
  if (idle_served_.size() >= kMaxIdleShares) {
    std::erase_if(idle_served_, [this](const auto& idle) {
      return idle.second <= served_clock_ || idle_served_.size() > kMaxIdleShares / 2;
    });
  }
  idle_served_[id] = served;
}

int Scheduler::fair_share() const {
  return std::max(1, num_running() / static_cast<int>(shares_.size()));
}

// Else nothing is preempted for a share, however little it runs.
bool Scheduler::has_shares_beyond_part() const {
  return std::ranges::any_of(shares_, [most = fair_share()](const auto& share) {
    return share.second.num_running > most;
  });
}

bool Scheduler::is_claim_step(std::int64_t step) { return step % kClaimInterval == 0; }

// Whether the step looks at it.
bool Scheduler::may_claim(const Sequence& sequence, std::int64_t step) const {
  if (sequence.is_held || has_total()) return false;
  const std::int64_t waited = step - sequence.waiting_since;
  if (sequence.share_state->num_running == 0 && waited <= kEagerSteps) return true;
  return is_claim_step(step) && waited >= kPatienceSteps;
}

// Preempts for those that wait and run less than their share: for one waiting sequence of
// each at a time, so that few rows of a step are lost.
void Scheduler::preempt_for_shares() {
  if (std::ranges::none_of(waiting_, [this](Sequence* s) { return may_claim(*s, step_); })) return;
  const int share = fair_share();
  const bool has_victims = has_shares_beyond_part();
  std::unordered_set<ConnectionId> served;
  const std::vector<Sequence*> order = candidates();  // the best last
  for (auto s = order.rbegin(); s != order.rend() && claimants_.size() < kClaimsMax; ++s) {
    const ConnectionId id = (*s)->share;
    if (!may_claim(**s, step_)) continue;
    if (!has_victims && step_ - (*s)->waiting_since < kPatienceSteps) continue;
    if ((*s)->share_state->num_running >= share || served.contains(id)) continue;
    served.insert(id);
    preempt_for(**s, share);
  }
}

// Preempts as many sequences as the claimant needs, or none if even all would not be enough.
void Scheduler::preempt_for(Sequence& claimant, int share) {
  const cache::PrefixMatch match = match_prefix(claimant);
  if (another_computes_prefix(claimant, match.num_tokens())) return;
  // Looking for victims takes time, so not where all of them would be too few.
  const int num_most =
      num_freed_at_most(share) + adapter_blocks_without(running_, claimant.adapter);
  if (!fits(claimant, match, claimant.num_to_compute() + 1, num_most)) return;
  const int num_free = max_running() - num_running() - static_cast<int>(claimants_.size());
  std::vector<Sequence*> victims;
  int num_blocks = 0;  // that they hold alone or are expected to need
  while (num_free + static_cast<int>(victims.size()) < 1 || !has_adapter_place(claimant, victims) ||
         !fits(claimant, match, claimant.num_to_compute() + 1,
               num_blocks + adapter_blocks_without(victims, claimant.adapter))) {
    Sequence* next = next_victim(share, victims);
    if (next == nullptr) return;
    victims.push_back(next);
    num_blocks += blocks_expected(*next);
    for (const BlockId block : next->blocks) num_blocks += pool_.num_refs(block) == 1 ? 1 : 0;
  }
  // Without victims it only waits behind others that do not fit: as a claimant it comes first, once
  // it has waited for long.
  if (victims.empty() && step_ - claimant.waiting_since < kPatienceSteps) return;
  for (Sequence* sequence : victims) {
    preempt(*sequence);
    sequence->protected_until = step_ + kProtectedSteps;
  }
  claimants_.push_back(&claimant);
}

// Blocks of all that next_victim() may give, and what they are expected to need.
int Scheduler::num_freed_at_most(int share) const {
  int num_blocks = 0;
  for (const Sequence* s : running_) {
    if (s->share_state->num_running <= share || step_ < s->protected_until) continue;
    num_blocks += static_cast<int>(s->blocks.size()) + blocks_expected(*s);
  }
  return num_blocks;
}

// The youngest unprotected sequence of the one that runs most, and more than the share; null if
// there is none.
Sequence* Scheduler::next_victim(int share, const std::vector<Sequence*>& victims) const {
  std::unordered_map<ConnectionId, int> num_victims;
  for (const Sequence* s : victims) ++num_victims[s->share];
  Sequence* best = nullptr;
  int most = share;
  for (Sequence* s : running_) {
    const int held = s->share_state->num_running - num_victims[s->share];
    if (step_ < s->protected_until || std::ranges::find(victims, s) != victims.end()) continue;
    if (held < most || (held == most && (best == nullptr || s->id < best->id))) continue;
    best = s;
    most = held;
  }
  return best;
}

}  // namespace lmtp::scheduler

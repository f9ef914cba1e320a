// The half of Scheduler that keeps connections from one another: what each has been served, and who
// makes way for whom.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lmtp/scheduler/scheduler.h"

namespace lmtp::scheduler {
namespace {

// Connections without streams whose share is still remembered.
constexpr std::size_t kMaxIdleShares = 4096;
// A sequence that has waited so long may have others make way; looked at every few steps. Together
// they stay below the 64 steps that docs/scheduling.md promises, with one more try in between.
constexpr std::int64_t kPatienceSteps = 32;
constexpr std::int64_t kClaimInterval = 16;
// As many as find a token in every step.
constexpr std::size_t kClaimsMax = std::size_t{2} * kBlockSize;
// Whoever has made way stays for so long.
constexpr std::int64_t kStaySteps = 256;

}  // namespace

// A connection that comes, or comes back, starts no lower than the clock: it has neither a credit
// for the time before, nor a debt for more than it took while others waited.
void Scheduler::join_share(ConnectionId connection) {
  const auto [joined, is_new] = shares_.try_emplace(connection);
  Share& share = joined->second;
  ++share.num_sequences;
  if (!is_new) return;
  std::int64_t least = -1;
  for (const auto& [id, other] : shares_) {
    if (id != connection && (least < 0 || other.served < least)) least = other.served;
  }
  served_clock_ = std::max(served_clock_, least);
  share.served = served_clock_;
  if (const auto idle = idle_served_.find(connection); idle != idle_served_.end()) {
    share.served = std::max(share.served, idle->second);
    idle_served_.erase(idle);
  }
}

// Half of those that are remembered go at once where there are too many, so that the walk is rare.
void Scheduler::leave_share(ConnectionId connection) {
  const std::int64_t served = shares_.at(connection).served;
  shares_.erase(connection);
  if (served <= served_clock_) return;
  if (idle_served_.size() >= kMaxIdleShares) {
    std::erase_if(idle_served_, [this](const auto& idle) {
      return idle.second <= served_clock_ || idle_served_.size() > kMaxIdleShares / 2;
    });
  }
  idle_served_[connection] = served;
}

// For a connection that has less than its share of what runs, and waits: one sequence at a time, so
// that it gets there without emptying the step.
void Scheduler::make_way() {
  if (step_ % kClaimInterval != 0 || waiting_.empty()) return;
  const int share = std::max(1, num_running() / static_cast<int>(shares_.size()));
  std::unordered_set<ConnectionId> served;
  const std::vector<Sequence*> order = candidates();  // the best last
  for (auto s = order.rbegin(); s != order.rend() && claimants_.size() < kClaimsMax; ++s) {
    const ConnectionId connection = (*s)->key.connection;
    if (step_ - (*s)->waiting_since < kPatienceSteps) continue;
    if (shares_.at(connection).num_running >= share || served.contains(connection)) continue;
    served.insert(connection);
    make_way_for(**s, share);
  }
}

// All who must go, or none: nobody makes way in vain.
void Scheduler::make_way_for(Sequence& claimant, int share) {
  const cache::PrefixMatch match = match_prefix(claimant);
  if (another_computes_prefix(claimant, match.num_tokens())) return;
  const int num_free = num_seats() - num_running() - static_cast<int>(claimants_.size());
  std::vector<Sequence*> leaving;
  int num_blocks = 0;  // that they give back or would still ask for
  while (num_free + static_cast<int>(leaving.size()) < 1 ||
         !room_for(match, claimant.num_to_compute() + 1, num_blocks)) {
    Sequence* next = next_to_leave(share, leaving);
    if (next == nullptr) return;
    leaving.push_back(next);
    num_blocks += blocks_expected(*next);
    for (const BlockId block : next->blocks) num_blocks += pool_.num_refs(block) == 1 ? 1 : 0;
  }
  // Where nobody must leave, it waits behind others who find no room: it is to be admitted first.
  for (Sequence* sequence : leaving) {
    preempt(*sequence);
    sequence->stays_until = step_ + kStaySteps;
  }
  claimants_.push_back(&claimant);
}

// The youngest of the connection that holds most, and more than the share. Null where there is none
// that has not made way lately.
Sequence* Scheduler::next_to_leave(int share, const std::vector<Sequence*>& leaving) const {
  std::unordered_map<ConnectionId, int> num_leaving;
  for (const Sequence* s : leaving) ++num_leaving[s->key.connection];
  Sequence* best = nullptr;
  int most = share;
  for (Sequence* s : running_) {
    const int held = shares_.at(s->key.connection).num_running - num_leaving[s->key.connection];
    if (step_ < s->stays_until || std::ranges::find(leaving, s) != leaving.end()) continue;
    if (held < most || (held == most && (best == nullptr || s->id < best->id))) continue;
    best = s;
    most = held;
  }
  return best;
}

}  // namespace lmtp::scheduler

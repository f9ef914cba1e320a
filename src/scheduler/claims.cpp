// The part of Scheduler that preempts sequences for clients that run less than their part.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lmtp/scheduler/scheduler.h"

namespace lmtp::scheduler {

// For one waiting sequence of each such client at a time, so that few rows of a step are lost.
void Scheduler::preempt_for_shares() {
  const auto may_claim = [this](const Sequence* s) { return shares_.may_claim(*s, step_); };
  if (std::ranges::none_of(waiting_, may_claim)) return;
  const int part = shares_.part(num_running());
  const bool has_victims = shares_.has_crowd(num_running());
  std::unordered_set<ConnectionId> served;
  const std::vector<Sequence*> order = candidates();  // the best last
  for (auto s = order.rbegin();
       s != order.rend() && shares_.claimants().size() < FairShares::kClaimantsMax; ++s) {
    const ConnectionId id = (*s)->share;
    if (!may_claim(*s)) continue;
    if (!has_victims && !FairShares::has_waited_long(**s, step_)) continue;
    if ((*s)->account->num_running >= part || served.contains(id)) continue;
    served.insert(id);
    preempt_for(**s, part);
  }
}

// Preempts as many sequences as the claimant needs, or none if even all would not be enough.
void Scheduler::preempt_for(Sequence& claimant, int part) {
  const cache::PrefixMatch match = match_prefix(claimant);
  if (another_computes_prefix(claimant, match.num_tokens())) return;
  // Looking for victims takes time, so not where all of them would be too few.
  const int num_most =
      num_freed_at_most(part) + adapters_.num_blocks_freed_by(running_, claimant.adapter);
  if (!fits(claimant, match, claimant.num_to_compute() + 1, num_most)) return;
  const int num_free = max_running() - num_running() - static_cast<int>(shares_.claimants().size());
  std::vector<Sequence*> victims;
  int num_blocks = 0;  // that they hold alone or are expected to need
  while (num_free + static_cast<int>(victims.size()) < 1 ||
         !adapters_.has_place(claimant, victims) ||
         !fits(claimant, match, claimant.num_to_compute() + 1,
               num_blocks + adapters_.num_blocks_freed_by(victims, claimant.adapter))) {
    Sequence* next = FairShares::next_victim(running_, victims, part, step_);
    if (next == nullptr) return;
    victims.push_back(next);
    num_blocks += blocks_expected(*next);
    for (const BlockId block : next->blocks) num_blocks += pool_.num_refs(block) == 1 ? 1 : 0;
  }
  // Without victims it only waits behind others that do not fit: as a claimant it comes first, once
  // it has waited for long.
  if (victims.empty() && !FairShares::has_waited_long(claimant, step_)) return;
  for (Sequence* sequence : victims) {
    preempt(*sequence);
    FairShares::protect(*sequence, step_);
  }
  shares_.add_claimant(claimant);
}

// Blocks of all that next_victim() may give, and what they are expected to need.
int Scheduler::num_freed_at_most(int part) const {
  int num_blocks = 0;
  for (const Sequence* s : running_) {
    if (!FairShares::may_be_victim(*s, part, step_)) continue;
    num_blocks += static_cast<int>(s->blocks.size()) + blocks_expected(*s);
  }
  return num_blocks;
}

}  // namespace lmtp::scheduler

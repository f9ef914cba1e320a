// The half of Scheduler that lets waiting sequences in. An admission is a transaction: match,
// count, then take everything or nothing.
#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"
#include "token_budget.h"

namespace lmtp::scheduler {
namespace {

// Steps after which a waiting sequence goes before all that came later on its connection.
constexpr std::int64_t kAgeingSteps = 256;
// Connections without streams whose share is still remembered.
constexpr std::size_t kMaxIdleShares = 4096;

int common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b, int limit) {
  return static_cast<int>(std::mismatch(a.begin(), a.begin() + limit, b.begin()).first - a.begin());
}

}  // namespace

// A connection that comes, or comes back, starts no lower than the clock: it has neither a credit
// for the time before, nor a debt for more than it took while others waited.
void Scheduler::join_share(ConnectionId connection) {
  std::int64_t least = -1;
  for (const auto& [id, share] : shares_) {
    if (share.num_sequences > 0 && (least < 0 || share.served < least)) least = share.served;
  }
  served_clock_ = std::max(served_clock_, least);
  std::erase_if(shares_, [&](const auto& entry) {
    return entry.second.num_sequences == 0 &&
           (entry.second.served <= served_clock_ || shares_.size() > kMaxIdleShares);
  });
  Share& share = shares_[connection];
  if (share.num_sequences++ == 0) share.served = std::max(share.served, served_clock_);
}

bool Scheduler::may_admit() const {
  return quota_ >= 1 && !preempted_ &&
         num_running() < std::min(options_.max_running, options_.max_batched_tokens);
}

void Scheduler::plan_admissions(bool only_cached) {
  if (waiting_.empty() || !may_admit()) return;
  std::vector<Sequence*> order = candidates(only_cached);  // the best last
  while (!order.empty() && order.back()->num_preempted > 0) {
    if (!may_admit() || admit(*order.back()) == Admission::kRefused) return;
    order.pop_back();
  }
  // Turns go to the connection served least, counting what this plan has already given it.
  std::unordered_map<ConnectionId, std::vector<Sequence*>> queues;
  for (Sequence* sequence : order) queues[sequence->key.connection].push_back(sequence);
  using Turn = std::tuple<std::int64_t, ConnectionId>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (const auto& [connection, queue] : queues) {
    turns.emplace(shares_.at(connection).served, connection);
  }
  while (!turns.empty() && may_admit()) {
    const ConnectionId connection = std::get<1>(turns.top());
    turns.pop();
    std::vector<Sequence*>& queue = queues.at(connection);
    if (admit(*queue.back()) == Admission::kRefused) return;
    queue.pop_back();
    if (!queue.empty()) turns.emplace(shares_.at(connection).served, connection);
  }
}

// The waiting sequences, worst first, as if all connections had been served alike; preempted ones
// are the best.
std::vector<Sequence*> Scheduler::candidates(bool only_cached) const {
  std::vector<Sequence*> order;
  for (Sequence* s : waiting_) {
    if (!only_cached || s->num_to_compute() - s->num_cached_hint <= kBlockSize) order.push_back(s);
  }
  const auto rank = [this](const Sequence* s) {
    const bool aged = step_ - s->arrival_step > kAgeingSteps;
    return std::tuple(s->num_preempted > 0 ? 0 : 1, aged ? 0 : 1, aged ? 0 : -s->num_cached_hint,
                      s->id);
  };
  std::ranges::sort(order, std::ranges::greater(), rank);
  return order;
}

Scheduler::Admission Scheduler::admit(Sequence& sequence) {
  const auto usable = std::span<const TokenId>(sequence.tokens).first(num_matchable(sequence));
  cache::PrefixMatch match = prefix_cache_.match(usable);
  if (another_computes_prefix(sequence, static_cast<int>(usable.size()), match.num_tokens())) {
    return Admission::kDeferred;
  }
  const auto chunk = [&] {
    return std::min(sequence.num_to_compute() - match.num_tokens(), chunk_room());
  };
  // All blocks up to its next token, not only the first chunk's: a prompt that enters by its first
  // chunk and then finds no room would preempt itself.
  const int num_needed = sequence.num_to_compute() + 1;
  if (!room_for(match, num_needed)) {
    // A partial hit may need one block more than none (source and copy): it is a wish only.
    match.partial = kNoBlock;
    match.num_partial = 0;
    if (!room_for(match, num_needed)) return Admission::kRefused;
  }
  const int num_tokens = chunk();
  take_matched(sequence, match);
  if (sequence.num_preempted == 0) {
    counters_.num_prompt_tokens += sequence.num_prompt;
    counters_.num_cached_tokens += std::min(match.num_tokens(), sequence.num_prompt);
    counters_.num_partial_hits += match.partial != kNoBlock ? 1 : 0;
    shares_.at(sequence.key.connection).served += sequence.num_to_compute() - match.num_tokens();
  }
  std::erase(waiting_, &sequence);
  running_.push_back(&sequence);
  sequence.status = SequenceStatus::kRunning;
  sequence.admission_step = step_;
  const bool planned = reserve(sequence, num_tokens);
  LMTP_CHECK(planned, sequence.id, num_tokens, pool_.num_free(), pool_.num_evictable());
  plan_row(sequence, num_tokens);
  quota_ -= num_tokens;
  return Admission::kAdmitted;
}

// Is a running prefill about to compute at least a block of this prefix beyond what is cached? Then
// it is cheaper to wait for it: a burst over one prefix computes it once.
bool Scheduler::another_computes_prefix(const Sequence& sequence, int num_usable,
                                        int num_matched) const {
  if (num_usable - num_matched < kBlockSize) return false;
  return std::ranges::any_of(running_, [&](const Sequence* other) {
    const int end = other->num_to_compute();
    if (end - other->num_computed <= 1 || end - num_matched < kBlockSize) return false;
    const int shared = common_prefix(sequence.tokens, other->tokens, std::min(num_usable, end));
    return shared - std::max(num_matched, other->num_computed) >= 1 &&
           shared - num_matched >= kBlockSize;
  });
}

// Can the match be pinned and a sequence grow to num_tokens, with a reserve left for those that run
// already? Alone, a sequence needs no reserve, and no room for a token beyond the context.
bool Scheduler::room_for(const cache::PrefixMatch& match, int num_tokens) const {
  int takes_evictable = 0;
  for (const BlockId block : match.blocks) takes_evictable += pool_.is_evictable(block) ? 1 : 0;
  if (match.partial != kNoBlock && pool_.is_evictable(match.partial)) ++takes_evictable;
  const bool in_place = match.partial != kNoBlock && pool_.is_evictable(match.partial) &&
                        prefix_cache_.num_tokens(match.partial) == match.num_partial;
  const int held = static_cast<int>(match.blocks.size()) + (in_place ? 1 : 0);
  const int needed = blocks_for(std::min(num_tokens, options_.context_length)) - held;
  const int available = pool_.num_free() + pool_.num_evictable() - takes_evictable;
  const int reserve = running_.empty() ? 0 : blocks_in_reserve();
  return available >= needed + reserve;
}

// What running sequences will probably still ask for: by the mean length of the past, not by their
// max_tokens, which programs set high and rarely use.
int Scheduler::blocks_in_reserve() const {
  int blocks = 0;
  for (const Sequence* s : running_) {
    int expected = s->num_to_compute();
    if (s->kind == SequenceKind::kGenerate) {
      const int mean = static_cast<int>(mean_generated_);
      expected = std::min(std::max(s->length() + 1, s->num_prompt + mean),
                          s->num_prompt + s->num_generated_max);
    }
    blocks += std::max(0, blocks_for(expected) - static_cast<int>(s->blocks.size()));
  }
  return blocks;
}

void Scheduler::take_matched(Sequence& sequence, const cache::PrefixMatch& match) {
  LMTP_CHECK(sequence.blocks.empty() && sequence.num_computed == 0, sequence.id);
  for (const BlockId block : match.blocks) {
    pool_.pin(block);
    sequence.blocks.push_back(block);
  }
  sequence.num_indexed = static_cast<int>(sequence.blocks.size());
  sequence.num_computed = match.num_tokens();
  if (match.partial == kNoBlock) return;
  const bool in_place = pool_.is_evictable(match.partial) &&
                        prefix_cache_.num_tokens(match.partial) == match.num_partial &&
                        match.num_partial < kBlockSize;
  pool_.pin(match.partial);
  if (in_place) {
    sequence.blocks.push_back(match.partial);
    ++sequence.num_indexed;
    return;
  }
  copy_sources_.push_back(match.partial);
  const BlockId copy = prefix_cache_.allocate();
  LMTP_CHECK(copy != kNoBlock, sequence.id);
  sequence.blocks.push_back(copy);
  plan_.copies.push_back({match.partial, copy, match.num_partial});
}

}  // namespace lmtp::scheduler

// The part of Scheduler that admits waiting sequences. An admission is a transaction: match, count,
// then take everything or nothing.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"
#include "sequence_rows.h"
#include "stream_end.h"

namespace lmtp::scheduler {
namespace {

// Waiting sequences whose prefix is looked up again in each step, round robin.
constexpr std::size_t kHintsRefreshed = 8;

// What each share was served, the least first.
using Turn = std::tuple<std::int64_t, ConnectionId>;
using Turns = std::priority_queue<Turn, std::vector<Turn>, std::greater<>>;

int common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b, int limit) {
  return static_cast<int>(std::mismatch(a.begin(), a.begin() + limit, b.begin()).first - a.begin());
}

}  // namespace

int Scheduler::max_running() const { return options_.batch.rows_max(); }

bool Scheduler::may_admit() const { return !admissions_over_ && has_place(); }

bool Scheduler::has_place() const { return budget_.has_any() && num_running() < max_running(); }

// The longest cached prefix; updates num_cached_hint.
cache::PrefixMatch Scheduler::match_prefix(Sequence& sequence) {
  const auto usable = std::span<const TokenId>(sequence.tokens).first(num_matchable(sequence));
  cache::PrefixMatch match = prefix_cache_.match(sequence.adapter, usable);
  sequence.num_cached_hint = match.num_tokens();
  return match;
}

// Other sequences compute and evict blocks meanwhile, and the hint decides from which share of a
// step a sequence is admitted.
void Scheduler::refresh_hints() {
  if (num_running() >= max_running()) return;
  for (std::size_t i = std::min(waiting_.size(), kHintsRefreshed); i > 0; --i) {
    match_prefix(*waiting_[next_hint_++ % waiting_.size()]);
  }
}

// A kept place is one of its share's: who has chunks enough to fill all places does not keep all.
bool Scheduler::precedes_others(const Sequence& sequence) const {
  return sequence.is_returning ||
         (sequence.keeps_place && sequence.account->num_running < shares_.part(num_running()));
}

// Claimants first, then those whose share runs nothing: these not in two steps in a row, so that
// the others have their turn beside new ones without end.
void Scheduler::plan_admissions() {
  if (waiting_.empty()) return;
  for (Sequence* claimant : shares_.claimants()) {
    if (may_admit() && claimant->status == SequenceStatus::kWaiting) admit(*claimant);
  }
  budget_.set_crowd(shares_.may_preempt() && shares_.has_crowd(num_running()));
  first_ones_wait_ = false;
  const bool others_first = std::exchange(first_ones_came_first_, false);
  const bool lets_first_ones_in = budget_.has_crowd() && !has_waited_long_for_blocks();
  if (lets_first_ones_in && !others_first) first_ones_came_first_ = admit_first_ones();
  if (may_admit()) admit_in_order();
  if (lets_first_ones_in && others_first) admit_first_ones();
  // What does not fit now may not in the next step either, but these may.
  if (first_ones_wait_ && has_place()) has_refused_ = false;
}

// Whether a sequence that ran before has, and its share runs no more than its part: those whose
// share runs nothing take no more blocks before it.
bool Scheduler::has_waited_long_for_blocks() const {
  return std::ranges::any_of(waiting_, [this,
                                        part = shares_.part(num_running())](const Sequence* s) {
    return s->is_returning && !s->is_held && has_aged(*s, step_) && s->account->num_running <= part;
  });
}

// Where a share runs more than its part, one that runs nothing waits neither for what has run
// before nor for what does not fit, but for those like it. Whether any was admitted.
bool Scheduler::admit_first_ones() {
  const auto is_first = [this](const Sequence* s) {
    const bool is_preempted_now = s->waiting_since == step_;
    return s->account->num_running == 0 && !s->is_held && !is_preempted_now;
  };
  if (!has_place() || std::ranges::none_of(waiting_, is_first)) return false;
  bool admitted = false;
  const bool had_refused = has_refused_;  // of all that wait, admit_in_order() says that
  const std::vector<Sequence*> order = candidates();  // best last
  for (auto s = order.rbegin(); s != order.rend() && has_place(); ++s) {
    if (!is_first(*s)) continue;
    // By what is known of its prefix, as admit_by_shares(): that costs less than to look it up.
    const bool has_tokens = budget_.tokens_for(**s, num_missing(**s), running_) >= 1;
    const Admission admission = has_tokens ? admit(**s) : Admission::kDeferred;
    if (admission == Admission::kRefused) break;
    admitted |= admission == Admission::kAdmitted;
    first_ones_wait_ |= admission == Admission::kDeferred;
  }
  has_refused_ = had_refused;
  return admitted;
}

// Returning sequences and those that keep their places first, then all others.
void Scheduler::admit_in_order() {
  std::vector<Sequence*> order = candidates();  // best last
  for (std::size_t i = order.size(); i-- > 0;) {
    Sequence& sequence = *order[i];
    if (!sequence.is_returning && !sequence.keeps_place) break;
    if (!precedes_others(sequence)) continue;  // by now its share has its part
    if (!may_admit()) return;
    if (admit(sequence) == Admission::kRefused) {
      admissions_over_ = true;
      return;
    }
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
  }
  admit_by_shares(order);
}

// Of each share what waits, the best last. The connections of one share take turns, and the one
// that runs least begins.
Scheduler::Queues Scheduler::by_share(const std::vector<Sequence*>& order) const {
  Queues queues;
  for (Sequence* sequence : order) queues[sequence->share].push_back(sequence);
  for (auto& [share, queue] : queues) {
    const auto is_first = [first = queue.front()->key.connection](const Sequence* s) {
      return s->key.connection == first;
    };
    if (std::ranges::all_of(queue, is_first)) continue;
    std::unordered_map<ConnectionId, int> num_before;
    for (const Sequence* s : running_) num_before[s->key.connection] += s->share == share ? 1 : 0;
    std::vector<std::pair<int, Sequence*>> turns;
    for (auto s = queue.rbegin(); s != queue.rend(); ++s) {
      turns.emplace_back(num_before[(*s)->key.connection]++, *s);
    }
    std::ranges::stable_sort(turns, {}, &std::pair<int, Sequence*>::first);
    std::ranges::transform(turns, queue.rbegin(), &std::pair<int, Sequence*>::second);
  }
  return queues;
}

// The next is always of the share served least, counting what this plan has already given it.
void Scheduler::admit_by_shares(const std::vector<Sequence*>& order) {
  Queues queues = by_share(order);
  Turns turns;
  for (const auto& [share, queue] : queues) turns.emplace(queue.front()->account->served, share);
  while (!turns.empty() && may_admit()) {
    const ConnectionId share = std::get<1>(turns.top());
    turns.pop();
    std::vector<Sequence*>& queue = queues.at(share);
    while (!queue.empty() &&
           budget_.tokens_for(*queue.back(), num_missing(*queue.back()), running_) < 1) {
      queue.pop_back();
    }
    if (queue.empty()) continue;
    const ClientAccount& served = *queue.back()->account;
    if (admit(*queue.back()) == Admission::kRefused) return;
    queue.pop_back();
    turns.emplace(served.served, share);
  }
}

std::vector<StreamKey> Scheduler::waiting_order() const {
  std::vector<StreamKey> keys;
  std::vector<Sequence*> order = candidates();  // the best last
  for (; !order.empty() && precedes_others(*order.back()); order.pop_back()) {
    keys.push_back(order.back()->key);
  }
  Queues queues = by_share(order);
  Turns turns;
  for (const auto& [share, queue] : queues) turns.emplace(queue.front()->account->served, share);
  while (!turns.empty()) {
    const auto [served, share] = turns.top();
    turns.pop();
    std::vector<Sequence*>& queue = queues.at(share);
    keys.push_back(queue.back()->key);
    const int missing = num_missing(*queue.back());
    queue.pop_back();
    if (!queue.empty()) turns.emplace(served + missing, share);
  }
  return keys;
}

// The waiting sequences, best last, regardless of what their shares were served; returning
// ones and those that keep their places are the best.
std::vector<Sequence*> Scheduler::candidates() const {
  std::vector<Sequence*> order;
  std::ranges::copy_if(waiting_, std::back_inserter(order), [this](const Sequence* s) {
    return !s->is_held && !(s->awaits_recall && scores_.is_lacking());
  });
  const auto rank = [this](const Sequence* s) {
    const bool aged = has_aged(*s, step_);
    return std::tuple(precedes_others(*s) ? 0 : 1, aged ? 0 : 1, aged ? 0 : -s->num_cached_hint,
                      s->id);
  };
  std::ranges::sort(order, std::ranges::greater(), rank);
  return order;
}

Scheduler::Admission Scheduler::refuse() {
  has_refused_ = true;
  return Admission::kRefused;
}

Scheduler::Admission Scheduler::admit(Sequence& sequence) {
  cache::PrefixMatch match = match_prefix(sequence);
  if (another_computes_prefix(sequence, match.num_tokens())) return Admission::kDeferred;
  if (!budget_.may_fetch(sequence, static_cast<int>(match.host.size()), step_)) {
    return sequence.is_returning ? Admission::kRefused : Admission::kDeferred;
  }
  // Others may find a place before it.
  if (!adapters_.has_place(sequence)) return Admission::kDeferred;
  if (adapters_.waits_for_starved(sequence)) return Admission::kDeferred;
  if (!is_within_total(sequence)) return refuse();
  // All blocks up to its next token, not only the first chunk's: a prompt admitted by its first
  // chunk alone could run out of blocks and preempt itself.
  const int num_needed = has_total() ? num_tokens_max(sequence) : sequence.num_to_compute() + 1;
  if (!fits(sequence, match, num_needed)) {
    // A partial hit may take one block more than none (source and copy): try without it.
    match.partial = kNoBlock;
    match.num_partial = 0;
    if (!fits(sequence, match, num_needed)) return refuse();
  }
  const int missing = sequence.num_to_compute() - match.num_tokens();
  const int num_tokens = budget_.tokens_for(sequence, missing, running_);
  // The hint was wrong; it is right now, and the next step divides its shares by it.
  if (num_tokens < 1) return sequence.is_returning ? Admission::kRefused : Admission::kDeferred;
  const bool cached_first = budget_.spends_cached_first(sequence, missing);
  slots_.take(sequence);
  adapters_.use(sequence);
  take_matched(sequence, match);
  counters_.num_adapter_loads += adapters_.load(sequence, making_->plan) ? 1 : 0;
  ++sequence.account->num_running;
  if (!sequence.is_returning) {
    const int num_cached = std::min(match.num_tokens(), sequence.num_prompt);
    making_->plan.admitted.push_back({sequence.key, num_cached});
    if (!sequence.is_fork) {
      counters_.num_prompt_tokens += sequence.num_prompt;
      counters_.num_cached_tokens += num_cached;
      counters_.num_partial_hits += match.partial != kNoBlock ? 1 : 0;
    }
    shares_.serve(*sequence.account, missing);
    withhold_end(sequence, options_.eos_ids);
  } else if (sequence.is_preempted && sequence.wants_notices) {
    making_->plan.notices.push_back({sequence.key, StreamNotice::Kind::kResumed});
  }
  ++making_->plan.num_admissions;
  std::erase(waiting_, &sequence);
  running_.push_back(&sequence);
  sequence.status = SequenceStatus::kRunning;
  sequence.admission_step = step_;
  sequence.is_preempted = false;
  const bool planned = reserve(sequence, num_tokens);
  LMTP_CHECK(planned, sequence.id, num_tokens, pool_.num_free(), pool_.num_evictable());
  plan_row(sequence, num_tokens);
  budget_.spend(missing, num_tokens, cached_first);
  return Admission::kAdmitted;
}

bool Scheduler::is_within_total(const Sequence& sequence) const {
  if (!has_total()) return true;
  std::int64_t sum = num_tokens_max(sequence);
  for (const Sequence* running : running_) sum += num_tokens_max(*running);
  return sum <= options_.batch.max_total_tokens;
}

// Whether a running prefill is about to compute at least a block of this prefix beyond what is
// cached. Then it is cheaper to wait: a burst of requests over one prefix computes it once. For a
// Score, which often has a short one, half of what it lacks is enough; and another Score gives it
// log probabilities beyond its prompt, too.
bool Scheduler::another_computes_prefix(const Sequence& sequence, int num_matched) const {
  const auto num_matched_max = static_cast<int>(num_matchable(sequence));
  const bool takes_scores = scores_.may_recall(sequence);
  const int most = takes_scores ? sequence.num_to_compute() : num_matched_max;
  const int least = sequence.kind == RequestKind::kScore
                        ? std::clamp((sequence.num_to_compute() - num_matched) / 2, 2, kBlockSize)
                        : kBlockSize;
  if (most - num_matched < least) return false;
  return std::ranges::any_of(running_, [&](const Sequence* other) {
    const int end = other->num_to_compute();
    if (other->adapter != sequence.adapter) return false;
    if (end - other->num_computed <= 1 || end - num_matched < least) return false;
    const bool gives_scores = takes_scores && other->kind == RequestKind::kScore &&
                              other->num_prompt <= sequence.num_prompt + sequence.num_emitted;
    const int num_usable = gives_scores ? most : num_matched_max;
    const int shared = common_prefix(sequence.tokens, other->tokens, std::min(num_usable, end));
    return shared - std::max(num_matched, other->num_computed) >= 1 &&
           shared - num_matched >= least;
  });
}

// Whether the match can be pinned, the sequence's adapter loaded, and it grow to num_tokens, at
// most to the whole context, with a reserve left for the running sequences. num_freed: blocks that
// would be freed first.
bool Scheduler::fits(const Sequence& sequence, const cache::PrefixMatch& match, int num_tokens,
                     int num_freed) const {
  int takes_evictable = 0;
  for (const BlockId block : match.blocks) takes_evictable += pool_.is_evictable(block) ? 1 : 0;
  if (match.partial != kNoBlock && pool_.is_evictable(match.partial)) ++takes_evictable;
  const bool in_place = match.partial != kNoBlock && pool_.is_evictable(match.partial) &&
                        prefix_cache_.num_tokens(match.partial) == match.num_partial;
  const int held = static_cast<int>(match.blocks.size()) + (in_place ? 1 : 0);
  const int needed = blocks_for(std::min(num_tokens, options_.context_length)) - held +
                     adapters_.num_blocks_to_take(sequence);
  const int available =
      pool_.num_free() + pool_.num_evictable() + pool_.num_idle() - takes_evictable;
  int reserve = 0;
  for (const Sequence* s : running_) reserve += blocks_expected(*s);
  return available + num_freed >= needed + reserve;
}

// Blocks that a running sequence will probably still need: by the mean length of finished ones, not
// by its max_tokens, which programs set high and rarely use. With a limit of all tokens: by that.
int Scheduler::blocks_expected(const Sequence& sequence) const {
  int expected = has_total() ? num_tokens_max(sequence) : sequence.num_to_compute();
  if (sequence.kind == RequestKind::kGenerate && !has_total()) {
    expected = std::min(
        std::max(sequence.length() + 1, sequence.num_prompt + static_cast<int>(mean_generated_)),
        sequence.num_prompt + sequence.num_generated_max);
  }
  return std::max(0, blocks_for(expected) - static_cast<int>(sequence.blocks.size()));
}

void Scheduler::take_matched(Sequence& sequence, const cache::PrefixMatch& match) {
  LMTP_CHECK(sequence.blocks.empty() && sequence.num_computed == 0, sequence.id);
  for (const BlockId block : match.blocks) {
    pool_.pin(block);
    sequence.blocks.push_back(block);
  }
  if (!match.host.empty()) {
    prefix_cache_.fetch(match.host, sequence.blocks);
    budget_.count_fetched(static_cast<int>(match.host.size()));
    counters_.num_swapped_in += static_cast<std::int64_t>(match.host.size());
    ++counters_.num_host_hits;
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
  making_->plan.copies.push_back({match.partial, copy, match.num_partial});
}

}  // namespace lmtp::scheduler

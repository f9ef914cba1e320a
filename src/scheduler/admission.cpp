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
#include "stream_end.h"
#include "token_budget.h"

namespace lmtp::scheduler {
namespace {

// Steps after which a waiting sequence precedes all that came later on its connection.
constexpr std::int64_t kAgeingSteps = 256;
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

bool Scheduler::has_place() const {
  return prefill_left_ + cached_left_ >= 1 && num_running() < max_running();
}

// As TGI's router does: the prompts of several requests then delay the running streams once.
bool Scheduler::has_to_hold_back() const {
  if (!options_.batch.pacing || running_.empty()) return false;
  const AdmissionPacing& pacing = *options_.batch.pacing;
  return steps_since_prefill_ < pacing.max_waiting_steps &&
         num_waiting() < std::floor(pacing.waiting_served_ratio * num_running());
}

// Returning sequences have been let in before, and claimants have waited long enough.
bool Scheduler::is_held_back(const Sequence& sequence, int num_missing) const {
  return holds_back_ && !is_small(num_missing) && !sequence.is_returning &&
         std::ranges::find(claimants_, &sequence) == claimants_.end();
}

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
         (sequence.keeps_place && sequence.share_state->num_running < fair_share());
}

// Claimants first, then those whose share runs nothing: these not in two steps in a row, so that
// the others have their turn beside new ones without end.
void Scheduler::plan_admissions() {
  if (waiting_.empty()) return;
  for (Sequence* claimant : claimants_) {
    if (may_admit() && claimant->status == SequenceStatus::kWaiting) admit(*claimant);
  }
  has_crowd_ = !has_total() && has_shares_beyond_part();
  first_ones_wait_ = false;
  const bool others_first = std::exchange(first_ones_came_first_, false);
  const bool lets_first_ones_in = has_crowd_ && !has_waited_long_for_blocks();
  if (lets_first_ones_in && !others_first) first_ones_came_first_ = admit_first_ones();
  if (may_admit()) admit_in_order();
  if (lets_first_ones_in && others_first) admit_first_ones();
  // What does not fit now may not in the next step either, but these may.
  if (first_ones_wait_ && has_place()) has_refused_ = false;
}

// Whether a sequence that ran before has, and its share runs no more than its part: those whose
// share runs nothing take no more blocks before it.
bool Scheduler::has_waited_long_for_blocks() const {
  return std::ranges::any_of(waiting_, [this, part = fair_share()](const Sequence* s) {
    return s->is_returning && !s->is_held && step_ - s->waiting_since > kAgeingSteps &&
           s->share_state->num_running <= part;
  });
}

// Where a share runs more than its part, one that runs nothing waits neither for what has run
// before nor for what does not fit, but for those like it. Whether any was admitted.
bool Scheduler::admit_first_ones() {
  const auto is_first = [this](const Sequence* s) {
    const bool is_preempted_now = s->waiting_since == step_;
    return s->share_state->num_running == 0 && !s->is_held && !is_preempted_now;
  };
  if (!has_place() || std::ranges::none_of(waiting_, is_first)) return false;
  bool admitted = false;
  const bool had_refused = has_refused_;  // of all that wait, admit_in_order() says that
  const std::vector<Sequence*> order = candidates();  // best last
  for (auto s = order.rbegin(); s != order.rend() && has_place(); ++s) {
    if (!is_first(*s)) continue;
    // By what is known of its prefix, as admit_by_shares(): that costs less than to look it up.
    const bool has_tokens = tokens_for(**s, num_missing(**s)) >= 1;
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
  for (const auto& [share, queue] : queues) {
    turns.emplace(queue.front()->share_state->served, share);
  }
  while (!turns.empty() && may_admit()) {
    const ConnectionId share = std::get<1>(turns.top());
    turns.pop();
    std::vector<Sequence*>& queue = queues.at(share);
    while (!queue.empty() && tokens_for(*queue.back(), num_missing(*queue.back())) < 1) {
      queue.pop_back();
    }
    if (queue.empty()) continue;
    const Share& served = *queue.back()->share_state;
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
  for (const auto& [share, queue] : queues) {
    turns.emplace(queue.front()->share_state->served, share);
  }
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
    const bool aged = step_ - s->waiting_since > kAgeingSteps;
    return std::tuple(precedes_others(*s) ? 0 : 1, aged ? 0 : 1, aged ? 0 : -s->num_cached_hint,
                      s->id);
  };
  std::ranges::sort(order, std::ranges::greater(), rank);
  return order;
}

// Of the prompts' share: what running prefills do not need, or half if it is shorter than they are.
int Scheduler::spare_for(int num_missing) const {
  return std::max(prefill_spare_, num_missing < shortest_prefill_ ? prefill_yield_ : 0);
}

// Whether it is a prompt of a share that runs nothing beside one that runs more than its part, and
// for all of it there is enough left of both kinds' shares, but not of its own.
bool Scheduler::takes_both(const Sequence& sequence, int num_missing) const {
  return has_crowd_ && sequence.share_state->num_running == 0 && !is_small(num_missing) &&
         num_missing > spare_for(num_missing) &&
         num_missing <= std::max({prefill_spare_, prefill_yield_, 0}) + cached_left_;
}

// Tokens that a waiting sequence would get in this step. A prompt gets what running prefills do not
// need, or half of their share if it is shorter than all of them; one of a share that runs nothing
// both kinds' shares, if it is no longer than what they have left. Claimants and returning
// sequences may take up to a block from the other kind's share if their own is empty; a claimant
// leaves one token to each other one. If nothing runs, both shares are open, so that a wrong hint
// never makes an empty step.
int Scheduler::tokens_for(const Sequence& sequence, int num_missing) const {
  if (is_held_back(sequence, num_missing)) return 0;
  const bool small = is_small(num_missing);
  const bool claims = std::ranges::find(claimants_, &sequence) != claimants_.end();
  int budget = small ? cached_left_ : prefill_left_;
  if (!small && !claims && !sequence.is_returning) budget = spare_for(num_missing);
  if (takes_both(sequence, num_missing)) budget = num_missing;
  if (claims || sequence.is_returning) {
    budget = std::max(budget, std::min(kBlockSize, small ? prefill_left_ : cached_left_));
    if (claims) {
      const auto num_claims = std::ranges::count(claimants_, SequenceStatus::kWaiting,
                                                 [](const Sequence* s) { return s->status; });
      budget = std::min(budget, cached_left_ + prefill_left_ + 1 - static_cast<int>(num_claims));
    }
  }
  const auto is_held = [](const Sequence* s) { return s->is_held; };
  if (budget < 1 && std::ranges::all_of(running_, is_held)) budget = cached_left_ + prefill_left_;
  if (options_.debug.max_chunk_tokens > 0) {
    budget = std::min(budget, options_.debug.max_chunk_tokens);
  }
  return std::min(
      {num_missing, budget, num_alike(sequence, sequence.num_to_compute() - num_missing)});
}

void Scheduler::spend(int num_tokens, bool cached_first) {
  int& own = cached_first ? cached_left_ : prefill_left_;
  int& other = cached_first ? prefill_left_ : cached_left_;
  const int of_own = std::min(own, num_tokens);
  const int before = prefill_left_;
  own -= of_own;
  other -= num_tokens - of_own;
  prefill_spare_ -= before - prefill_left_;
  prefill_yield_ -= before - prefill_left_;
}

Scheduler::Admission Scheduler::refuse() {
  has_refused_ = true;
  return Admission::kRefused;
}

Scheduler::Admission Scheduler::admit(Sequence& sequence) {
  cache::PrefixMatch match = match_prefix(sequence);
  if (another_computes_prefix(sequence, match.num_tokens())) return Admission::kDeferred;
  if (!may_fetch(sequence, match)) {
    return sequence.is_returning ? Admission::kRefused : Admission::kDeferred;
  }
  // Others may find a place before it.
  if (!has_adapter_place(sequence) || waits_for_starved(sequence)) return Admission::kDeferred;
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
  const int num_tokens = tokens_for(sequence, missing);
  // The hint was wrong; it is right now, and the next step divides its shares by it.
  if (num_tokens < 1) return sequence.is_returning ? Admission::kRefused : Admission::kDeferred;
  const bool cached_first = is_small(missing) || takes_both(sequence, missing);
  slots_.take(sequence);
  use_adapter(sequence);
  take_matched(sequence, match);
  load_adapter(sequence);
  Share& share = *sequence.share_state;
  ++share.num_running;
  if (!sequence.is_returning) {
    const int num_cached = std::min(match.num_tokens(), sequence.num_prompt);
    making_->plan.admitted.push_back({sequence.key, num_cached});
    if (!sequence.is_fork) {
      counters_.num_prompt_tokens += sequence.num_prompt;
      counters_.num_cached_tokens += num_cached;
      counters_.num_partial_hits += match.partial != kNoBlock ? 1 : 0;
    }
    serve(share, missing);
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
  if (!is_small(missing)) steps_since_prefill_ = 0;
  const bool planned = reserve(sequence, num_tokens);
  LMTP_CHECK(planned, sequence.id, num_tokens, pool_.num_free(), pool_.num_evictable());
  plan_row(sequence, num_tokens);
  spend(num_tokens, cached_first);
  return Admission::kAdmitted;
}

// One long prefix may come from the host at once; then others' wait for the next step. Not those
// for which others were preempted, nor those that have waited for long.
bool Scheduler::may_fetch(const Sequence& sequence, const cache::PrefixMatch& match) const {
  const auto count = static_cast<int>(match.host.size());
  return num_fetched_ == 0 || count == 0 || count <= fetched_max_ - num_fetched_ ||
         std::ranges::find(claimants_, &sequence) != claimants_.end() ||
         step_ - sequence.waiting_since > kAgeingSteps;
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
  int needed = blocks_for(std::min(num_tokens, options_.context_length)) - held;
  int available = pool_.num_free() + pool_.num_evictable() + pool_.num_idle() - takes_evictable;
  if (sequence.adapter != 0) {
    const AdapterState& adapter = adapter_of(sequence);
    const int num_blocks = sequence.weights_of_adapter->num_blocks();
    if (!is_resident(adapter)) {
      needed += num_blocks;
    } else if (adapter.num_running == 0) {
      available -= num_blocks;
    }
  }
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
    num_fetched_ += static_cast<int>(match.host.size());
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

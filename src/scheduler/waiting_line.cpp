#include "lmtp/scheduler/waiting_line.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <span>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "sequence_rows.h"

namespace lmtp::scheduler {
namespace {

// Waiting sequences whose prefix is looked up again in each step, round robin.
constexpr std::size_t kHintsRefreshed = 8;

// What each client was served, the least first.
using Turn = std::tuple<std::int64_t, ConnectionId>;
using Turns = std::priority_queue<Turn, std::vector<Turn>, std::greater<>>;

// So many of a client's sequences may be admitted in a row before its oldest one.
constexpr int kPassedMax = 3;

bool have_one_priority(const std::vector<Sequence*>& sequences) {
  return std::ranges::adjacent_find(sequences, std::ranges::not_equal_to(), &Sequence::priority) ==
         sequences.end();
}

// The sequences of one client, the best last: by priority, and after those that may pass it the
// oldest.
void order_by_priority(std::vector<Sequence*>& queue) {
  if (have_one_priority(queue)) return;
  std::ranges::stable_sort(queue, std::ranges::greater(), &Sequence::priority);
  std::vector<Sequence*> by_age = queue;
  std::ranges::sort(by_age, {}, &Sequence::id);
  std::vector<Sequence*> order;
  std::unordered_set<const Sequence*> taken;
  const auto next_of = [&taken](auto& rest) {
    while (taken.contains(*rest)) ++rest;
    return *rest;
  };
  auto best = queue.rbegin();
  auto oldest = by_age.begin();
  for (int num_passed = queue.front()->account->num_passed; order.size() < queue.size();) {
    Sequence* const due = next_of(oldest);
    Sequence* const next = num_passed < kPassedMax ? next_of(best) : due;
    if (next == due) num_passed = 0;
    if (next->priority < due->priority) ++num_passed;
    taken.insert(next);
    order.push_back(next);
  }
  std::ranges::copy(order, queue.rbegin());
}

int common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b, int limit) {
  return static_cast<int>(std::mismatch(a.begin(), a.begin() + limit, b.begin()).first - a.begin());
}

}  // namespace

void WaitingLine::add(Sequence& sequence, std::int64_t step) {
  sequence.status = SequenceStatus::kWaiting;
  sequence.waiting_since = step;
  sequence.lacks_blocks = false;
  waiting_.push_back(&sequence);
}

void WaitingLine::remove(const Sequence& sequence) { std::erase(waiting_, &sequence); }

void WaitingLine::keep_place(const Sequence& sequence) {
  kept_places_.keep(sequence.key.connection, sequence.name_space, sequence.tokens, now_);
}

// A fork comes with no prompt of its own.
void WaitingLine::take_place(Sequence& sequence) {
  const auto num_prompt = static_cast<std::size_t>(sequence.num_prompt);
  sequence.keeps_place =
      !sequence.is_fork &&
      kept_places_.take(sequence.key.connection, sequence.name_space,
                        std::span(sequence.tokens).first(num_prompt), sequence.arrival);
}

cache::PrefixMatch WaitingLine::match(Sequence& sequence) const {
  const auto usable = std::span<const TokenId>(sequence.tokens).first(num_matchable(sequence));
  cache::PrefixMatch match = prefixes_.match(sequence.name_space, usable);
  sequence.num_cached_hint = match.num_tokens();
  return match;
}

void WaitingLine::refresh_hints() {
  if (is_full()) return;
  for (std::size_t i = std::min(waiting_.size(), kHintsRefreshed); i > 0; --i) {
    match(*waiting_[next_hint_++ % waiting_.size()]);
  }
}

// A block of the prefix is worth the wait. Of a Score, which often has a short one, half of what it
// lacks is; and between Scores of one connection, as those of one request are, a single token, so
// that each is computed once.
bool WaitingLine::another_computes_prefix(const Sequence& sequence, int num_matched) const {
  const bool scores = sequence.kind == RequestKind::kScore;
  const bool takes_scores = scores_.may_recall(sequence);
  const int num_missing = sequence.num_to_compute() - num_matched;
  const int num_known = sequence.num_prompt + sequence.num_emitted;
  return std::ranges::any_of(running_, [&](const Sequence* other) {
    const bool other_scores = other->kind == RequestKind::kScore;
    const int end = other->num_to_compute();
    if (other->name_space != sequence.name_space) return false;
    if (!other_scores && end - other->num_computed <= 1) return false;
    int least = kBlockSize;
    if (scores) least = std::clamp(num_missing / 2, 1, kBlockSize);
    if (scores && other_scores && other->key.connection == sequence.key.connection) least = 1;
    const bool gives_scores = takes_scores && other_scores && other->num_prompt <= num_known;
    const int num_usable =
        gives_scores ? sequence.num_to_compute() : static_cast<int>(num_matchable(sequence));
    const int most = std::min(num_usable, end);
    if (most - num_matched < least || most <= other->num_computed) return false;
    const int shared = common_prefix(sequence.tokens, other->tokens, most);
    // The token before the first one whose log probability is not known is computed in any case.
    const int found = shared > num_known ? shared - 1 : std::min(shared, num_known - 1);
    return found > other->num_computed && found - num_matched >= least;
  });
}

bool WaitingLine::is_full() const {
  return static_cast<int>(running_.size()) >= options_.batch.rows_max();
}

int WaitingLine::tokens_for(const Sequence& sequence) const {
  return budget_.tokens_for(sequence, num_missing(sequence), running_);
}

// Who has chunks enough to fill all places does not keep all of them.
bool WaitingLine::precedes_others(const Sequence& sequence) const {
  if (sequence.is_returning) return true;
  return sequence.keeps_place && sequence.account->num_running < part() && !unserved_waits_long_;
}

std::vector<Sequence*> WaitingLine::candidates(std::int64_t step) const {
  std::vector<Sequence*> order;
  std::ranges::copy_if(waiting_, std::back_inserter(order), [this](const Sequence* s) {
    return !s->is_held && !(s->awaits_recall && scores_.is_lacking());
  });
  const auto rank = [this, step](const Sequence* s) {
    const bool aged = has_aged(*s, step);
    return std::tuple(precedes_others(*s) ? 0 : 1, aged ? 0 : 1, aged ? 0 : -s->num_cached_hint,
                      s->id);
  };
  std::ranges::sort(order, std::ranges::greater(), rank);
  apply_priorities(order);
  return order;
}

// The places of a client stay where they are.
void WaitingLine::apply_priorities(std::vector<Sequence*>& order) const {
  if (have_one_priority(order)) return;
  Queues queues;
  for (Sequence* s : order) {
    if (!precedes_others(*s)) queues[s->share].push_back(s);
  }
  for (auto& [client, queue] : queues) order_by_priority(queue);
  for (auto s = order.rbegin(); s != order.rend(); ++s) {
    if (precedes_others(**s)) continue;
    std::vector<Sequence*>& queue = queues.at((*s)->share);
    *s = queue.back();
    queue.pop_back();
  }
}

// The connections of a client take turns.
WaitingLine::Queues WaitingLine::by_client(const std::vector<Sequence*>& order) const {
  Queues queues;
  for (Sequence* sequence : order) queues[sequence->share].push_back(sequence);
  for (auto& [client, queue] : queues) {
    const auto is_first = [first = queue.front()->key.connection](const Sequence* s) {
      return s->key.connection == first;
    };
    if (std::ranges::all_of(queue, is_first)) continue;
    std::unordered_map<ConnectionId, int> num_before;
    for (const Sequence* s : running_) num_before[s->key.connection] += s->share == client ? 1 : 0;
    std::vector<std::pair<int, Sequence*>> turns;
    for (auto s = queue.rbegin(); s != queue.rend(); ++s) {
      turns.emplace_back(num_before[(*s)->key.connection]++, *s);
    }
    std::ranges::stable_sort(turns, {}, &std::pair<int, Sequence*>::first);
    std::ranges::transform(turns, queue.rbegin(), &std::pair<int, Sequence*>::second);
    order_by_priority(queue);
  }
  return queues;
}

std::vector<StreamKey> WaitingLine::order(std::int64_t step) const {
  std::vector<StreamKey> keys;
  std::vector<Sequence*> order = candidates(step);
  for (; !order.empty() && precedes_others(*order.back()); order.pop_back()) {
    keys.push_back(order.back()->key);
  }
  Queues queues = by_client(order);
  Turns turns;
  for (const auto& [client, queue] : queues) turns.emplace(queue.front()->account->served, client);
  while (!turns.empty()) {
    const auto [served, client] = turns.top();
    turns.pop();
    std::vector<Sequence*>& queue = queues.at(client);
    keys.push_back(queue.back()->key);
    const int missing = num_missing(*queue.back());
    queue.pop_back();
    if (!queue.empty()) turns.emplace(served + missing, client);
  }
  return keys;
}

WaitingLine::Admission WaitingLine::admit(Host& host, Sequence& sequence) {
  const Admission admission = host.admit(sequence);
  if (admission == Admission::kAdmitted && !sequence.is_returning) {
    const Sequence* oldest = nullptr;  // of its client's that could have been admitted
    for (const Sequence* const s : waiting_) {
      const bool is_candidate = !s->is_held && !(s->awaits_recall && scores_.is_lacking());
      if (s->share != sequence.share || s->id >= sequence.id || s->is_returning) continue;
      if (is_candidate && (oldest == nullptr || s->id < oldest->id)) oldest = s;
    }
    int& num_passed = sequence.account->num_passed;
    if (oldest == nullptr) num_passed = 0;
    if (oldest != nullptr && sequence.priority < oldest->priority) ++num_passed;
  }
  if (admission != Admission::kDoesNotFit) return admission;
  sequence.lacks_blocks = true;
  has_refused_ = true;
  return Admission::kRefused;
}

void WaitingLine::admit_all(Host& host, std::int64_t step) {
  unserved_waits_long_ = std::ranges::any_of(waiting_, [this, step](const Sequence* s) {
    return !s->is_returning && waits_long(*s, step);
  });
  if (waiting_.empty()) return;
  for (Sequence* claimant : shares_.claimants()) {
    if (may_admit() && claimant->status == SequenceStatus::kWaiting) admit(host, *claimant);
  }
  const bool has_crowd =
      shares_.may_preempt() && shares_.has_crowd(static_cast<int>(running_.size()));
  budget_.set_crowd(has_crowd);
  unserved_clients_waiting_ = false;
  const bool others_first = std::exchange(unserved_came_first_, false);
  if (has_crowd && !others_first) unserved_came_first_ = admit_unserved_clients(host, step);
  if (may_admit()) admit_in_order(host, step);
  if (has_crowd && others_first) admit_unserved_clients(host, step);
  // What does not fit now may not in the next step either, but these may.
  if (unserved_clients_waiting_ && has_place()) has_refused_ = false;
}

// For blocks, while its client has no more than its part, or nothing if it has never run.
bool WaitingLine::waits_long(const Sequence& sequence, std::int64_t step) const {
  return !sequence.is_held && sequence.lacks_blocks && has_aged(sequence, step) &&
         sequence.account->num_running <= (sequence.is_returning ? part() : 0);
}

bool WaitingLine::may_pass_others(const Sequence& sequence, std::int64_t step) const {
  return std::ranges::none_of(waiting_, [&](const Sequence* s) {
    return s->waiting_since < sequence.waiting_since && s->account->num_running == 0 &&
           waits_long(*s, step);
  });
}

// Whether any was admitted.
bool WaitingLine::admit_unserved_clients(Host& host, std::int64_t step) {
  const auto is_unserved = [step](const Sequence* s) {
    const bool is_preempted_now = s->waiting_since == step;
    return s->account->num_running == 0 && !s->is_held && !is_preempted_now;
  };
  if (!has_place() || std::ranges::none_of(waiting_, is_unserved)) return false;
  bool admitted = false;
  const bool is_for_long = std::ranges::any_of(
      waiting_, [this, step](const Sequence* s) { return waits_long(*s, step); });
  const bool had_refused = has_refused_;  // admit_in_order() decides that
  const std::vector<Sequence*> order = candidates(step);
  for (auto s = order.rbegin(); s != order.rend() && has_place(); ++s) {
    if (!is_unserved(*s) || (is_for_long && !waits_long(**s, step))) continue;
    // By what is known of its prefix, as admit_by_clients(): that costs less than to look it up.
    const Admission admission = tokens_for(**s) >= 1 ? admit(host, **s) : Admission::kDeferred;
    if (admission == Admission::kRefused) break;
    admitted |= admission == Admission::kAdmitted;
    unserved_clients_waiting_ |= admission == Admission::kDeferred;
  }
  has_refused_ = had_refused;
  return admitted;
}

// Returning sequences and follow-ups first, then all others.
void WaitingLine::admit_in_order(Host& host, std::int64_t step) {
  std::vector<Sequence*> order = candidates(step);
  for (std::size_t i = order.size(); i-- > 0;) {
    Sequence& sequence = *order[i];
    if (!sequence.is_returning && !sequence.keeps_place) break;
    if (!precedes_others(sequence)) continue;  // by now its client runs its part
    if (!may_admit()) return;
    if (admit(host, sequence) == Admission::kRefused) {
      is_closed_ = true;
      return;
    }
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
  }
  admit_by_clients(host, order);
}

void WaitingLine::admit_by_clients(Host& host, const std::vector<Sequence*>& order) {
  Queues queues = by_client(order);
  Turns turns;
  for (const auto& [client, queue] : queues) turns.emplace(queue.front()->account->served, client);
  while (!turns.empty() && may_admit()) {
    const ConnectionId client = std::get<1>(turns.top());
    turns.pop();
    std::vector<Sequence*>& queue = queues.at(client);
    while (!queue.empty() && tokens_for(*queue.back()) < 1) queue.pop_back();
    if (queue.empty()) continue;
    const ClientAccount& account = *queue.back()->account;
    if (admit(host, *queue.back()) == Admission::kRefused) return;
    queue.pop_back();
    turns.emplace(account.served, client);
  }
}

// Waiting sequences come first where one may have a place and blocks, and where it may claim.
bool WaitingLine::may_be_passed_over(std::int64_t step) const {
  if (std::ranges::all_of(waiting_, &Sequence::is_held)) return true;
  if (!is_full() && !has_refused_) return false;
  if (FairShares::is_claim_step(step)) return false;
  const auto may_claim = [&](const Sequence* s) { return shares_.may_claim(*s, step); };
  return !shares_.has_crowd(static_cast<int>(running_.size())) ||
         std::ranges::none_of(waiting_, may_claim);
}

}  // namespace lmtp::scheduler

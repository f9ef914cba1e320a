// The part of Scheduler that makes room: it admits sequences, and preempts some for others. An
// admission is a transaction: match, count, then take everything or nothing.
#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"
#include "sequence_rows.h"
#include "stream_end.h"

namespace lmtp::scheduler {

Scheduler::Admission Scheduler::admit(Sequence& sequence) {
  cache::PrefixMatch match = line_.match(sequence);
  if (line_.another_computes_prefix(sequence, match.num_tokens())) return Admission::kDeferred;
  if (!budget_.may_fetch(sequence, match.num_on_host(), steps_.number())) {
    return sequence.is_returning ? Admission::kRefused : Admission::kDeferred;
  }
  // Others may find a place before it.
  if (!adapters_.has_place(sequence)) return Admission::kDeferred;
  if (adapters_.waits_for_starved(sequence)) return Admission::kDeferred;
  if (!is_within_total(sequence)) return Admission::kDoesNotFit;
  // All blocks up to its next token, not only the first chunk's: a prompt admitted by its first
  // chunk alone could run out of blocks and preempt itself.
  const int num_needed = has_total() ? num_tokens_max(sequence) : sequence.num_to_compute() + 1;
  if (!fits(sequence, match, num_needed)) {
    // A partial hit may take one block more than none (source and copy): try without it.
    prefix_cache_.drop_partial(match);
    if (!fits(sequence, match, num_needed)) return Admission::kDoesNotFit;
  }
  const int missing = sequence.num_to_compute() - match.num_tokens();
  const int num_tokens = budget_.tokens_for(sequence, missing, running_);
  // The hint was wrong; it is right now, and the next step divides its budget by it.
  if (num_tokens < 1) return sequence.is_returning ? Admission::kRefused : Admission::kDeferred;
  const bool cached_first = budget_.spends_cached_first(sequence, missing);
  slots_.take(sequence);
  adapters_.use(sequence);
  take_matched(sequence, match);
  counters_.num_adapter_loads += adapters_.load(sequence, steps_.making().plan) ? 1 : 0;
  ++sequence.account->num_running;
  if (!sequence.is_returning) {
    const int num_cached = std::min(match.num_tokens(), sequence.num_prompt);
    steps_.making().plan.admitted.push_back({sequence.key, num_cached});
    if (!sequence.is_fork) {
      counters_.num_prompt_tokens += sequence.num_prompt;
      counters_.num_cached_tokens += num_cached;
      counters_.num_partial_hits += match.partial != kNoBlock ? 1 : 0;
    }
    shares_.serve(*sequence.account, missing);
    withhold_end(sequence, options_.eos_ids);
  } else if (sequence.is_preempted && sequence.wants_notices) {
    steps_.making().plan.notices.push_back({sequence.key, StreamNotice::Kind::kResumed});
  }
  note_recomputed(sequence, match.num_tokens());
  ++steps_.making().plan.num_admissions;
  line_.remove(sequence);
  running_.push_back(&sequence);
  sequence.status = SequenceStatus::kRunning;
  sequence.admission_step = steps_.number();
  sequence.is_preempted = false;
  const bool planned = reserve(sequence, num_tokens);
  LMTP_CHECK(planned, sequence.id, num_tokens, pool_.num_free(), pool_.num_evictable());
  plan_row(sequence, num_tokens);
  budget_.spend(missing, num_tokens, cached_first);
  return Admission::kAdmitted;
}

// Where layers are in one group, only what was evicted for lack of blocks is computed again.
void Scheduler::note_recomputed(const Sequence& sequence, int num_matched) {
  if (options_.kv_layout.num_groups == 1 || !sequence.wants_notices) return;
  const int num_usable = std::min(sequence.num_known, static_cast<int>(num_matchable(sequence)));
  if (num_usable <= num_matched) return;
  steps_.making().plan.notices.push_back(
      {sequence.key, StreamNotice::Kind::kRecomputes, num_usable - num_matched});
}

bool Scheduler::is_within_total(const Sequence& sequence) const {
  if (!has_total()) return true;
  std::int64_t sum = num_tokens_max(sequence);
  for (const Sequence* running : running_) sum += num_tokens_max(*running);
  return sum <= options_.batch.max_total_tokens;
}

// Whether there are blocks for the match, the sequence's adapter and growth to num_tokens, at most
// to the whole context, beside a reserve for the running sequences. num_freed: blocks that would be
// freed first.
bool Scheduler::fits(const Sequence& sequence, const cache::PrefixMatch& match, int num_tokens,
                     int num_freed) const {
  const int needed = adapters_.num_blocks_to_take(sequence) +
                     cache::SequenceBlocks::num_to_take(
                         prefix_cache_, match, std::min(num_tokens, options_.context_length));
  const int available = pool_.num_free() + pool_.num_evictable() + pool_.num_idle();
  int reserve = running_.empty() ? 0 : blocks_of_appended();
  for (const Sequence* s : running_) reserve += blocks_expected(*s);
  return available + num_freed >= needed + reserve;
}

// Blocks that a running sequence will probably still need: by the mean length of finished ones, not
// by its max_tokens, which programs set high and rarely use. With a limit of all tokens: by that.
int Scheduler::blocks_expected(const Sequence& sequence) const {
  int expected = has_total() ? num_tokens_max(sequence) : sequence.num_to_compute();
  if (sequence.kind == RequestKind::kGenerate && !has_total()) {
    expected =
        std::min(std::max(sequence.length() + 1,
                          sequence.num_prompt + static_cast<int>(sequences_.mean_generated())),
                 sequence.num_prompt + sequence.num_generated_max);
  }
  const KvLayout& layout = options_.kv_layout;
  // A step, one ahead of it, and a block that blocks_of_appended() does not count.
  const int num_usual = 2 + options_.max_drafts;
  const int num_written =
      std::min(layout.num_written_max,
               has_total() ? num_usual + kBlockSize : std::max(num_usual, num_remaining(sequence)));
  return sequence.blocks.num_more(layout, expected, num_written);
}

// With a limit of all tokens none is set back, whatever is appended: what the steps write beyond
// blocks_expected() is num_written_max tokens of all sequences together, in each window.
int Scheduler::blocks_of_appended() const {
  const KvLayout& layout = options_.kv_layout;
  return has_total() ? (layout.num_groups - 1) * cache::blocks_for(layout.num_written_max) : 0;
}

void Scheduler::take_matched(Sequence& sequence, const cache::PrefixMatch& match) {
  const cache::BlockMove copy = sequence.blocks.take(prefix_cache_, match, sequence.is_returning);
  sequence.num_computed = match.num_tokens();
  if (match.num_on_host() > 0) {
    budget_.count_fetched(match.num_on_host());
    counters_.num_swapped_in += match.num_on_host();
    ++counters_.num_host_hits;
  }
  if (copy.from == kNoBlock) return;
  const auto last = static_cast<std::size_t>(sequence.blocks.size()) - 1;
  for (int group = 0; group < sequence.blocks.num_groups(); ++group) {
    const BlockId from = prefix_cache_.in_group(copy.from, group);
    steps_.making().copy_sources.push_back(from);
    if (pool_.is_stub(from)) continue;
    steps_.making().plan.copies.push_back(
        {from, sequence.blocks.in_group(last, group), match.num_partial});
  }
}

// For clients that run less than their part: for one waiting sequence of each at a time, so that
// few rows of a step are lost.
void Scheduler::preempt_for_clients() {
  const auto may_claim = [this](const Sequence* s) {
    return shares_.may_claim(*s, steps_.number());
  };
  if (std::ranges::none_of(waiting(), may_claim)) return;
  const int part = shares_.part(num_running());
  const bool has_victims = shares_.has_crowd(num_running());
  std::unordered_set<ConnectionId> served;
  const std::vector<Sequence*> order = line_.candidates(steps_.number());  // the best last
  for (auto s = order.rbegin();
       s != order.rend() && shares_.claimants().size() < FairShares::kClaimantsMax; ++s) {
    const ConnectionId id = (*s)->share;
    if (!may_claim(*s)) continue;
    if (!has_victims && !FairShares::has_waited_long(**s, steps_.number())) continue;
    if ((*s)->account->num_running >= part || served.contains(id)) continue;
    served.insert(id);
    preempt_for(**s, part);
  }
}

// Preempts as many sequences as the claimant needs, or none if even all would not be enough.
void Scheduler::preempt_for(Sequence& claimant, int part) {
  const cache::PrefixMatch match = line_.match(claimant);
  if (line_.another_computes_prefix(claimant, match.num_tokens())) return;
  // Looking for victims takes time, so it is skipped where all of them would be too few.
  // Where nobody is left, nobody appends.
  const auto all_left = [this](std::size_t num_victims) {
    return num_victims == running_.size() ? blocks_of_appended() : 0;
  };
  const int num_most = num_freed_at_most(part) + all_left(running_.size()) +
                       adapters_.num_blocks_freed_by(running_, claimant.adapter);
  if (!fits(claimant, match, claimant.num_to_compute() + 1, num_most)) return;
  const int num_free =
      options_.batch.rows_max() - num_running() - static_cast<int>(shares_.claimants().size());
  std::vector<Sequence*> victims;
  int num_blocks = 0;  // that they hold alone or are expected to need
  while (num_free + static_cast<int>(victims.size()) < 1 ||
         !adapters_.has_place(claimant, victims) ||
         !fits(claimant, match, claimant.num_to_compute() + 1,
               num_blocks + all_left(victims.size()) +
                   adapters_.num_blocks_freed_by(victims, claimant.adapter))) {
    Sequence* next = FairShares::next_victim(running_, victims, part, steps_.number());
    if (next == nullptr) return;
    victims.push_back(next);
    num_blocks += blocks_expected(*next) + next->blocks.num_alone(pool_);
  }
  // Without victims it only waits for others that do not fit: as a claimant it comes first, once
  // it has waited for long, and until those have waited for longer.
  if (victims.empty() && (!FairShares::has_waited_long(claimant, steps_.number()) ||
                          !line_.may_pass_others(claimant, steps_.number()))) {
    return;
  }
  for (Sequence* sequence : victims) {
    preempt(*sequence);
    FairShares::protect(*sequence, steps_.number());
  }
  shares_.add_claimant(claimant);
}

// Blocks of all that next_victim() may give, and what they are expected to need.
int Scheduler::num_freed_at_most(int part) const {
  int num_blocks = 0;
  for (const Sequence* s : running_) {
    if (!FairShares::may_be_victim(*s, part, steps_.number())) continue;
    num_blocks += s->blocks.num_held(options_.kv_layout) + blocks_expected(*s);
  }
  return num_blocks;
}

}  // namespace lmtp::scheduler

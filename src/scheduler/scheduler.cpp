#include "lmtp/scheduler/scheduler.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lmtp/base/check.h"
#include "sequence_rows.h"

namespace lmtp::scheduler {

int Scheduler::min_blocks(int context_length, const KvLayout& layout) {
  return static_cast<int>(layout.num_held_max(context_length)) + 1;
}

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)),
      pool_(options_.num_blocks,
            options_.kv_layout.num_stubs(options_.num_blocks, options_.batch.rows_max(),
                                         options_.context_length)),
      prefix_cache_(pool_, options_.num_host_blocks, options_.kv_layout),
      adapters_(options_.batch.max_adapters, prefix_cache_),
      scores_(options_.score_cache_bytes),
      shares_(!has_total()),
      budget_(options_, shares_),
      line_(options_, running_, prefix_cache_, shares_, budget_, scores_),
      drafts_(options_),
      slots_(options_.batch.rows_max()) {
  LMTP_CHECK(options_.num_blocks >= min_blocks(options_.context_length, options_.kv_layout),
             options_.num_blocks, options_.context_length);
  // A step writes so many tokens, and so does one ahead of it.
  LMTP_CHECK(options_.kv_layout.num_groups == 1 ||
                 options_.kv_layout.num_written_max >= 2 * options_.batch.max_tokens,
             options_.kv_layout.num_written_max, options_.batch.max_tokens);
  LMTP_CHECK(options_.vocab_size >= 1, options_.vocab_size);
  LMTP_CHECK(options_.batch.max_tokens >= 1, options_.batch.max_tokens);
  LMTP_CHECK(options_.batch.max_sequences >= 1 &&
                 options_.batch.max_sequences <= BatchLimits::kSequencesMax,
             options_.batch.max_sequences);
  LMTP_CHECK(options_.batch.max_adapters >= 1, options_.batch.max_adapters);
  LMTP_CHECK(options_.batch.max_prefill_tokens >= 0, options_.batch.max_prefill_tokens);
  LMTP_CHECK(options_.batch.max_total_tokens == 0 ||
                 options_.batch.max_total_tokens >= options_.context_length,
             options_.batch.max_total_tokens, options_.context_length);
  LMTP_CHECK(options_.debug.max_chunk_tokens >= 0, options_.debug.max_chunk_tokens);
  LMTP_CHECK(options_.max_drafts >= 0, options_.max_drafts);
}

Scheduler::~Scheduler() = default;

std::vector<SchedulerEvent>& Scheduler::add(std::unique_ptr<Sequence> sequence) {
  LMTP_CHECK(!steps_.is_under_way());
  LMTP_CHECK(!sequences_.find(sequence->key), sequence->key.connection, sequence->key.stream);
  Sequence& added = sequences_.add(std::move(sequence));
  added.num_generated_max = generated_max(added.params, added.num_prompt);
  adapters_.join(added);
  if (!added.is_fork) added.name_space = scopes_.name_space(added.adapter, added.cache_salt);
  line_.take_place(added);
  shares_.join(added);
  line_.add(added, steps_.number());
  line_.forget_refusal();

  events_.clear();
  if (added.kind == RequestKind::kScore && added.num_prompt == 0) {
    // Nothing precedes the first token; the reference gives it log probability 0 as well.
    const TokenId first = added.tokens[0];
    events_.push_back({added.key, next_entry(added, TokenResult{first, 0.0F, {{first, 0.0F}}})});
    if (added.num_emitted == added.length()) {
      finish(added);
      return events_;
    }
  }
  if (!recall(added)) line_.match(added);
  return events_;
}

bool Scheduler::remove(StreamKey key) {
  LMTP_CHECK(!steps_.is_under_way());
  Sequence* const found = sequences_.find(key);
  if (found == nullptr) return false;
  finish(*found);
  return true;
}

int Scheduler::num_waiting_tokens() const {
  int sum = 0;
  for (const Sequence* sequence : waiting()) sum += sequence->num_to_compute();
  return sum;
}

const StepPlan& Scheduler::plan(const StepLimits& limits) {
  StepPlan& plan = steps_.begin().plan;
  line_.refresh_hints();
  adapters_.find_starved(waiting(), steps_.number());
  preempt_for_clients();
  line_.begin();
  budget_.begin(limits, num_waiting(), num_running());
  prefix_cache_.set_host_pays(limits.fetched > 0);
  plan_decodes();
  budget_.divide(limits, plan.num_tokens, waiting(), running_, steps_.number());
  line_.admit_all(*this, steps_.number());
  plan_prefills();
  if (drafts_.is_on()) plan_drafts();
  shares_.clear_claimants();
  steps_.end_making();
  if (plan.empty()) {
    end_step();
  } else {
    send_changes(plan);
  }
  return plan;
}

// It plans as always, from where each sequence will be then (Sequence::in_flight).
const StepPlan& Scheduler::plan_ahead(const StepLimits& limits) {
  LMTP_CHECK(!drafts_.is_on());
  StepPlan& plan = steps_.ahead().plan;
  if (!line_.may_be_passed_over(steps_.number() + 1)) return plan;
  steps_.begin_ahead();
  plan_decodes();
  budget_.divide(limits, plan.num_tokens, waiting(), running_, steps_.number());
  plan_prefills();
  steps_.end_making();
  if (!plan.empty()) send_changes(plan);
  return plan;
}

// Preemption removes from the back of running_ (the youngest), so this loop and that of
// plan_prefills() go by index.
void Scheduler::plan_decodes() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (num_remaining(*running_[i]) == 1 && may_continue(*running_[i])) plan_row(*running_[i], 1);
  }
}

// Younger prefills were admitted because they are shorter than all older ones (StepBudget), so
// after the oldest the youngest come next.
void Scheduler::plan_prefills() {
  const auto is_one = [this](const Sequence* s) { return is_prefill(*s, steps_.number()); };
  const auto first = std::ranges::find_if(running_, is_one);
  if (first == running_.end()) return;
  const auto oldest = static_cast<std::size_t>(first - running_.begin());
  plan_prefill(**first, budget_.most_for_oldest({first + 1, running_.end()}, steps_.number()));
  for (std::size_t i = running_.size(); i-- > oldest + 1;) {
    if (i < running_.size() && is_one(running_[i])) {
      plan_prefill(*running_[i], budget_.prefill_left());
    }
  }
}

void Scheduler::plan_prefill(Sequence& sequence, int most) {
  const int num_tokens = budget_.chunk(sequence, most);
  if (plan_row(sequence, num_tokens)) budget_.spend_prefill(num_tokens);
}

// Last of a plan: of what tokens and blocks are left. None is preempted for drafts.
void Scheduler::plan_drafts() {
  StepPlan& plan = steps_.making().plan;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const int room = drafts_.room(plan);
    if (room < 1) return;
    PlanRow& row = plan.rows[i];
    Sequence& sequence = *steps_.making().sequences[i];
    if (!row.draws()) continue;
    const int count = drafts_.append(sequence, room, steps_.number(), prefix_cache_, plan.drafts);
    if (count < 1) continue;
    if (!reserve(sequence, row.num_tokens + count)) {
      plan.drafts.resize(plan.drafts.size() - static_cast<std::size_t>(count));
      continue;
    }
    row.num_drafts = count;
    row.num_tokens += count;
    row.num_logits += count;
    plan.num_tokens += count;
    plan.num_logits += count;
  }
}

// Adds a row, preempting younger sequences if blocks are missing; none is preempted ahead. False if
// num_tokens < 1, blocks are missing, or the sequence itself was preempted.
bool Scheduler::plan_row(Sequence& sequence, int num_tokens) {
  if (num_tokens < 1) return false;
  while (!reserve(sequence, num_tokens)) {
    steps_.note_lack_of_blocks();
    if (steps_.is_making_ahead()) return false;
    Sequence& victim = *running_.back();
    preempt(victim);
    if (&victim == &sequence) return false;
  }
  steps_.add_row(sequence, make_row(sequence, num_tokens));
  return true;
}

// Blocks for the next num_tokens tokens; all of them, or none and false.
bool Scheduler::reserve(Sequence& sequence, int num_tokens) {
  const int had = sequence.blocks.size();
  if (!sequence.blocks.extend(prefix_cache_, sequence.num_computed_ahead() + num_tokens)) {
    return false;
  }
  for (int i = had; i < sequence.blocks.size(); ++i) {
    slots_.note_block(sequence, static_cast<std::size_t>(i));
  }
  return true;
}

void Scheduler::preempt(Sequence& victim) {
  LMTP_CHECK(running_.size() > 1, "one sequence alone must fit", pool_.num_total());
  steps_.remove_row(victim);
  requeue(victim);
  ++victim.num_preempted;
  victim.is_preempted = true;
  ++counters_.num_preemptions;
  line_.close();
  if (victim.wants_notices) {
    steps_.making().plan.notices.push_back({victim.key, StreamNotice::Kind::kPreempted});
  }
}

// A running sequence waits again, and is admitted before those that have not run yet. What it
// computed stays in the prefix cache.
void Scheduler::requeue(Sequence& sequence) {
  if (sequence.status != SequenceStatus::kRunning) return;
  // If the plan at hand admitted it, its block copies have not been made yet.
  if (!steps_.is_under_way() || sequence.admission_step != steps_.number()) {
    index_computed(sequence, true);
  }
  sequence.num_cached_hint = sequence.num_known = sequence.num_computed;
  release(sequence);
  std::erase(running_, &sequence);
  --sequence.account->num_running;
  sequence.is_returning = true;
  line_.add(sequence, steps_.number());
}

}  // namespace lmtp::scheduler

#include "lmtp/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/check.h"
#include "stream_end.h"
#include "token_budget.h"

namespace lmtp::scheduler {
namespace {

SchedulerEvent error_event(const Sequence& sequence, Error error) {
  const StreamKey& key = sequence.key;
  return {key,
          StreamError{.stream_id = key.stream, .error = std::move(error), .sample = key.sample}};
}

}  // namespace

int Scheduler::min_blocks(int context_length) { return blocks_for(context_length) + 1; }

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)),
      pool_(options_.num_blocks),
      prefix_cache_(pool_, options_.num_host_blocks),
      score_cache_(options_.score_cache_bytes) {
  LMTP_CHECK(options_.num_blocks >= min_blocks(options_.context_length), options_.num_blocks,
             options_.context_length);
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
  slots_.resize(static_cast<std::size_t>(max_running()));
  for (int slot = max_running(); slot-- > 0;) free_slots_.push_back(slot);
  changes_.ended = free_slots_;  // an agent may have executed the plans of another scheduler
}

Scheduler::~Scheduler() = default;

std::vector<SchedulerEvent>& Scheduler::add(std::unique_ptr<Sequence> sequence) {
  LMTP_CHECK(!in_step_);
  LMTP_CHECK(live(sequence->key) == nullptr, sequence->key.connection, sequence->key.stream);
  Sequence& added = *sequence;
  added.id = next_id_++;
  added.waiting_since = step_;
  added.num_generated_max = generated_max(added.params, added.num_prompt);
  join_adapter(added);
  // A fork comes with no prompt of its own.
  added.keeps_place =
      !added.is_fork &&
      kept_places_.take(added.key.connection, added.adapter,
                        std::span(added.tokens).first(static_cast<std::size_t>(added.num_prompt)),
                        added.arrival);
  sequences_.emplace(added.key, std::move(sequence));
  waiting_.push_back(&added);
  has_refused_ = false;

  join_share(added);

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
  if (!recall(added)) match_prefix(added);
  return events_;
}

bool Scheduler::remove(StreamKey key) {
  LMTP_CHECK(!in_step_);
  Sequence* const found = live(key);
  if (found == nullptr) return false;
  finish(*found);
  return true;
}

int Scheduler::num_waiting_tokens() const {
  int sum = 0;
  for (const Sequence* sequence : waiting_) sum += sequence->num_to_compute();
  return sum;
}

const StepPlan& Scheduler::plan(const StepLimits& limits) {
  LMTP_CHECK(!in_step_);
  in_step_ = true;
  ++step_;
  making_ = &current();
  making_->clear();
  refresh_hints();
  find_starved();
  preempt_for_shares();
  admissions_over_ = has_refused_ = false;
  holds_back_ = has_to_hold_back();
  fetched_max_ = limits.fetched;
  num_fetched_ = 0;
  prefix_cache_.set_host_pays(limits.fetched > 0);
  plan_decodes();
  divide(limits);
  plan_admissions();
  plan_prefills();
  if (options_.max_drafts > 0) plan_drafts();
  claimants_.clear();
  making_ = nullptr;
  if (current().plan.empty()) {
    end_plan();
  } else {
    send_changes(current().plan);
  }
  return current().plan;
}

// Divides the step between prefills and almost cached sequences, by what running and waiting ones
// need.
void Scheduler::divide(const StepLimits& limits) {
  const int most = options_.batch.max_tokens;
  StepShares wanted;
  shortest_prefill_ = StepLimits::kAny;
  for (const Sequence* s : running_) {
    if (!is_prefill(*s)) continue;
    wanted.prefill = std::min(most, wanted.prefill + num_remaining(*s));
    shortest_prefill_ = std::min(shortest_prefill_, num_remaining(*s));
  }
  const int running = wanted.prefill;
  const bool has_place = num_running() < max_running();
  for (const Sequence* s : waiting_) {
    if (!has_place) break;
    if (s->is_held) continue;
    const int missing = num_missing(*s);
    if (is_held_back(*s, missing)) continue;
    int& sum = is_small(missing) ? wanted.cached : wanted.prefill;
    sum = std::min(most, sum + missing);
  }
  const StepShares shares = divide_step(options_.batch, making_->plan.num_tokens, limits, wanted);
  prefill_left_ = shares.prefill;
  cached_left_ = shares.cached;
  prefill_spare_ = prefill_left_ - running;
  prefill_yield_ = prefill_left_ / 2;
}

// Preemption removes from the back of running_ (the youngest), so this loop and that of
// plan_prefills() go by index.
void Scheduler::plan_decodes() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (num_remaining(*running_[i]) == 1 && may_continue(*running_[i])) plan_row(*running_[i], 1);
  }
}

// The oldest always gets at least half of the share; younger ones were admitted because they are
// shorter than all older ones (tokens_for()), so the youngest come next.
void Scheduler::plan_prefills() {
  const auto first =
      std::ranges::find_if(running_, [this](const Sequence* s) { return is_prefill(*s); });
  if (first == running_.end()) return;
  const auto oldest = static_cast<std::size_t>(first - running_.begin());
  int wanted = 0;  // by the others
  for (std::size_t i = oldest + 1; i < running_.size() && wanted < prefill_left_; ++i) {
    if (is_prefill(*running_[i])) wanted += std::min(num_remaining(*running_[i]), prefill_left_);
  }
  plan_prefill(**first, prefill_left_ - std::clamp(wanted, 0, std::max(prefill_yield_, 0)));
  for (std::size_t i = running_.size(); i-- > oldest + 1;) {
    if (i < running_.size() && is_prefill(*running_[i])) plan_prefill(*running_[i], prefill_left_);
  }
}

void Scheduler::plan_prefill(Sequence& sequence, int most) {
  const int chunk =
      options_.debug.max_chunk_tokens > 0 ? options_.debug.max_chunk_tokens : StepLimits::kAny;
  const int num_tokens = std::min(
      {num_remaining(sequence), most, chunk, num_alike(sequence, sequence.num_computed_ahead())});
  if (plan_row(sequence, num_tokens)) prefill_left_ -= num_tokens;
}

// A sequence that this plan admits has its row already.
bool Scheduler::is_prefill(const Sequence& sequence) const {
  return num_remaining(sequence) > 1 && sequence.admission_step != step_ && may_continue(sequence);
}

// Adds a row, preempting younger sequences if blocks are missing; none is preempted ahead. False if
// num_tokens < 1, blocks are missing, or the sequence itself was preempted.
bool Scheduler::plan_row(Sequence& sequence, int num_tokens) {
  if (num_tokens < 1) return false;
  while (!reserve(sequence, num_tokens)) {
    lacks_blocks_ = true;
    if (making_ == &ahead()) return false;
    Sequence& victim = *running_.back();
    preempt(victim);
    if (&victim == &sequence) return false;
  }
  const PlanRow row = make_row(sequence, num_tokens);
  making_->plan.rows.push_back(row);
  making_->sequences.push_back(&sequence);
  making_->plan.num_tokens += row.num_tokens;
  making_->plan.num_logits += row.num_logits;
  if (sequence.mask_source != nullptr && row.draws()) making_->plan.waits_for_masks = true;
  return true;
}

// Allocates blocks for the next num_tokens tokens; all of them, or none and false.
bool Scheduler::reserve(Sequence& sequence, int num_tokens) {
  const std::size_t had = sequence.blocks.size();
  const auto needed =
      static_cast<std::size_t>(blocks_for(sequence.num_computed_ahead() + num_tokens));
  while (sequence.blocks.size() < needed) {
    const BlockId block = prefix_cache_.allocate();
    if (block == kNoBlock) {
      while (sequence.blocks.size() > had) {
        pool_.unpin(sequence.blocks.back(), false);
        sequence.blocks.pop_back();
        if (sequence.is_slot_known) changes_.blocks.pop_back();
      }
      return false;
    }
    set_block(sequence, sequence.blocks.size(), block);
  }
  return true;
}

void Scheduler::preempt(Sequence& victim) {
  LMTP_CHECK(running_.size() > 1, "one sequence alone must fit", pool_.num_total());
  unplan(victim);
  requeue(victim);
  ++victim.num_preempted;
  victim.is_preempted = true;
  ++counters_.num_preemptions;
  admissions_over_ = true;
  if (victim.wants_notices) {
    making_->plan.notices.push_back({victim.key, StreamNotice::Kind::kPreempted});
  }
}

void Scheduler::unplan(const Sequence& sequence) {
  const auto at = std::ranges::find(making_->sequences, &sequence);
  if (at == making_->sequences.end()) return;
  StepPlan& plan = making_->plan;
  const auto row = plan.rows.begin() + (at - making_->sequences.begin());
  plan.num_tokens -= row->num_tokens;
  plan.num_logits -= row->num_logits;
  plan.rows.erase(row);
  making_->sequences.erase(at);
}

std::vector<SchedulerEvent>& Scheduler::commit(StepResult& result) {
  Planned& done = current();
  LMTP_CHECK(in_step_ && !done.plan.empty());
  LMTP_CHECK(result.rows.size() == done.plan.rows.size(), result.rows.size(),
             done.plan.rows.size());
  events_.clear();
  ++steps_since_prefill_;
  end_plan();
  for (std::size_t i = 0; i < done.sequences.size(); ++i) {
    if (done.sequences[i] == nullptr) continue;
    commit_row(*done.sequences[i], done.plan.rows[i], result.rows[i]);
  }
  if (std::exchange(has_new_scores_, false) || lacks_recalls_) recall_waiting();
  done.clear();
  if (!ahead().plan.empty()) {
    current_ = 1 - current_;
    in_step_ = true;
  }
  return events_;
}

void Scheduler::commit_row(Sequence& sequence, const PlanRow& row, RowResult& result) {
  if (result.error) {
    events_.push_back(error_event(sequence, std::move(*result.error)));
    drop(sequence);
    return;
  }
  // The logits of a row that was skipped are asked for again, of one that is held the last ones.
  const int num_open = result.skipped ? row.num_logits : result.held ? 1 : 0;
  if (result.skipped) void_row_ahead(sequence);
  const int num_refused = row.num_logits - num_open - static_cast<int>(result.tokens.size());
  LMTP_CHECK(num_refused >= 0 && num_refused <= row.num_drafts, num_refused, row.num_drafts);
  LMTP_CHECK(num_open == 0 || row.num_drafts == 0, num_open, row.num_drafts);
  sequence.num_computed += row.num_tokens - row.num_drafts - num_open;
  counters_.num_tokens_computed += row.num_tokens;
  // Prompts were charged when they were admitted.
  if (row.first_position >= sequence.num_prompt && !result.skipped) {
    serve(*sequence.share_state, std::max(1, row.num_logits - num_refused));
  }
  // Later requests often continue a prompt from its end: index its partial block too.
  const bool prompt_done =
      row.first_position < sequence.num_prompt && sequence.num_computed >= sequence.num_prompt;
  index_computed(sequence, prompt_done);
  const bool was_withheld = sequence.is_end_withheld;
  if (give_tokens(sequence, row, result.tokens)) {
    if (sequence.kind == RequestKind::kGenerate) {
      kept_places_.keep(sequence.key.connection, sequence.adapter, sequence.tokens, now_);
    }
    return finish(sequence);
  }
  if (row.num_drafts > 0) index_computed(sequence, false);
  if (sequence.kind == RequestKind::kScore) add_scores(sequence);  // others may wait for them
  if (sequence.is_controlled && row.draws() && !result.skipped) set_held(sequence, true);
  if (!result.forced.empty()) force(sequence, result.forced);
  if (was_withheld && !sequence.is_end_withheld) {
    changes_.biases.push_back({sequence.slot, sequence.params.logit_bias});
  }
}

// Whether the sequence ends by one of them.
bool Scheduler::give_tokens(Sequence& sequence, const PlanRow& row,
                            std::vector<TokenResult>& tokens) {
  const bool keeps_scores = score_cache_.is_on() && sequence.params.reports_raw();
  has_new_scores_ |= keeps_scores && sequence.kind == RequestKind::kScore;
  int num_given = 0;
  bool ends = false;
  for (TokenResult& token : tokens) {
    // Of the tokens that the row draws those before this one were its drafts.
    if (row.num_drafts > 0) sequence.num_computed = sequence.length();
    TokenEvent entry = next_entry(sequence, std::move(token));
    if (keeps_scores) keep_score(sequence, entry.logprob);
    ++num_given;
    ends = entry.finish_reason != FinishReason::kNone;
    events_.push_back({sequence.key, std::move(entry)});
    if (ends) break;
  }
  if (options_.max_drafts > 0) {
    count_drafts(sequence, row, std::max(0, num_given - row.num_scored - 1));
  }
  return ends;
}

TokenEvent Scheduler::next_entry(Sequence& sequence, TokenResult&& token) {
  TokenEvent entry{sequence.key.stream, token.token,  token.logprob,
                   FinishReason::kNone, std::nullopt, sequence.key.sample};
  ++sequence.num_emitted;
  const bool is_known = sequence.num_prompt + sequence.num_emitted <= sequence.length();
  if (sequence.kind == RequestKind::kScore) {
    ++counters_.num_scored_tokens;
    if (sequence.num_prompt + sequence.num_emitted == sequence.length()) {
      entry.finish_reason = FinishReason::kStop;
    }
    if (sequence.params.top_logprobs > 0) entry.top_logprobs = std::move(token.top_logprobs);
    return entry;
  }
  entry.num_backtracked = std::exchange(sequence.num_backtracked, 0);
  if (token.top_logprobs.empty()) token.top_logprobs = {{token.token, token.logprob}};
  entry.top_logprobs = std::move(token.top_logprobs);
  if (is_known) {
    entry.is_forced = sequence.num_prompt + sequence.num_emitted <= sequence.forced_end;
    entry.is_appended = !entry.is_forced;
    if (sequence.is_end_withheld || sequence.stops != nullptr) {
      check_stops(sequence, token.token, true);
    }
    return entry;
  }
  sequence.tokens.push_back(token.token);
  ++counters_.num_generated_tokens;
  entry.finish_reason = end_by_last_token(sequence, options_.eos_ids);
  return entry;
}

// Adds the blocks that have become full to the prefix cache; `with_tail`: the last, partial one
// too.
void Scheduler::index_computed(Sequence& sequence, bool with_tail) {
  const auto tokens = std::span<const TokenId>(sequence.tokens);
  // The last indexed block may be a partial one that has grown since.
  if (sequence.num_indexed > 0) {
    const BlockId last = sequence.blocks[static_cast<std::size_t>(sequence.num_indexed) - 1];
    if (prefix_cache_.num_tokens(last) < kBlockSize) --sequence.num_indexed;
  }
  while (sequence.num_indexed * kBlockSize < sequence.num_computed) {
    const int first = sequence.num_indexed * kBlockSize;
    const int size = std::min(sequence.num_computed - first, kBlockSize);
    const auto at = static_cast<std::size_t>(sequence.num_indexed);
    const BlockId block = sequence.blocks[at];
    const bool indexed = prefix_cache_.is_indexed(block);
    if (size < kBlockSize && !with_tail) {
      if (indexed) ++sequence.num_indexed;
      return;
    }
    const auto held =
        tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
    const BlockId parent =
        at == 0 ? cache::PrefixCache::root(sequence.adapter) : sequence.blocks[at - 1];
    const BlockId node =
        indexed ? prefix_cache_.extend(block, held) : prefix_cache_.insert(parent, held, block);
    // Another sequence may be writing in the partial node of the same tokens: ours is not indexed.
    if (node == kNoBlock || (node != block && size < kBlockSize)) return;
    replace_block(sequence, at, node);
    ++sequence.num_indexed;
    if (size < kBlockSize) return;
  }
}

// If the cache has a full block of the same tokens already, the sequence uses that instead of its
// own: by the numerics contract both hold the same bits.
void Scheduler::replace_block(Sequence& sequence, std::size_t index, BlockId node) {
  const BlockId own = sequence.blocks[index];
  if (own == node) return;
  pool_.pin(node);
  pool_.unpin(own, false);
  set_block(sequence, index, node);
}

// Unpins all blocks. Indexed ones stay in the prefix cache until they are evicted.
void Scheduler::release(Sequence& sequence) {
  prefix_cache_.unpin_path(sequence.blocks);
  leave_adapter(sequence);
  sequence.blocks.clear();
  leave_slot(sequence);
  has_refused_ = false;
  sequence.num_indexed = 0;
  sequence.num_computed = 0;
}

// Ends a sequence whose computed tokens are valid: they stay in the prefix cache.
void Scheduler::finish(Sequence& sequence) {
  index_computed(sequence, true);
  drop(sequence);
}

void Scheduler::drop(Sequence& sequence) {
  if (sequence.kind == RequestKind::kGenerate && sequence.num_generated() > 0) {
    constexpr double kWeight = 1.0 / 64;
    mean_generated_ += kWeight * (sequence.num_generated() - mean_generated_);
  }
  add_scores(sequence);
  release(sequence);
  set_held(sequence, false);
  void_row_ahead(sequence);
  if (sequence.status == SequenceStatus::kRunning) --sequence.share_state->num_running;
  if (sequence.status != SequenceStatus::kSuspended) leave_share(sequence);
  std::erase(running_, &sequence);
  std::erase(waiting_, &sequence);
  sequences_.erase(sequence.key);
}

std::vector<SchedulerEvent>& Scheduler::abort(const Error& error) {
  LMTP_CHECK(in_step_);
  events_.clear();
  Planned& failed = current();
  end_plan();
  ahead().clear();
  for (Sequence* sequence : failed.sequences) {
    if (sequence == nullptr) continue;
    events_.push_back(error_event(*sequence, error));
    drop(*sequence);  // copies and writes of the failed step may not have happened
  }
  failed.clear();
  // Nor may the agent know what the plan said of the others.
  while (!running_.empty()) requeue(*running_.back());
  free_adapters();
  // Nor be moved what was to be, which others may have been given since.
  if (prefix_cache_.host().num_total() > 0) prefix_cache_.clear();
  return events_;
}

void Scheduler::end_plan() {
  for (const BlockId block : copy_sources_) pool_.unpin(block, prefix_cache_.is_indexed(block));
  copy_sources_.clear();
  in_step_ = false;
}

}  // namespace lmtp::scheduler

// The part of Scheduler that takes over what a step gave: commit() and abort(), and how sequences
// end.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/scheduler/scheduler.h"
#include "stream_end.h"

namespace lmtp::scheduler {
namespace {

SchedulerEvent error_event(const Sequence& sequence, Error error) {
  const StreamKey& key = sequence.key;
  return {key,
          StreamError{.stream_id = key.stream, .error = std::move(error), .sample = key.sample}};
}

SchedulerEvent embedding_event(const Sequence& sequence, Embedding embedding) {
  if (embedding == nullptr) {
    return error_event(sequence, {ErrorCode::kInternal, "the model gives no embeddings here"});
  }
  TokenEvent event{.stream_id = sequence.key.stream, .token = kNoToken};
  event.finish_reason = FinishReason::kStop;
  event.sample = sequence.key.sample;
  event.embedding = std::move(embedding);
  return {sequence.key, std::move(event)};
}

}  // namespace

std::vector<SchedulerEvent>& Scheduler::commit(StepResult& result) {
  const PlannedSteps::Planned& done = steps_.current();
  LMTP_CHECK(steps_.is_under_way() && !done.plan.empty());
  LMTP_CHECK(result.rows.size() == done.plan.rows.size(), result.rows.size(),
             done.plan.rows.size());
  events_.clear();
  budget_.end_step();
  end_step();
  for (std::size_t i = 0; i < done.sequences.size(); ++i) {
    if (done.sequences[i] == nullptr) continue;
    commit_row(*done.sequences[i], done.plan.rows[i], result.rows[i]);
  }
  if (scores_.needs_round()) recall_waiting();
  steps_.advance();
  return events_;
}

void Scheduler::commit_row(Sequence& sequence, const PlanRow& row, RowResult& result) {
  if (result.error) {
    events_.push_back(error_event(sequence, std::move(*result.error)));
    drop(sequence);
    return;
  }
  // A row that was skipped asks for its logits again; a held one for the last of them.
  const int num_open = result.skipped ? row.num_logits : result.held ? 1 : 0;
  if (result.skipped) steps_.discard_planned_row(sequence);
  const int num_refused = row.num_logits - num_open - static_cast<int>(result.tokens.size());
  LMTP_CHECK(num_refused >= 0 && num_refused <= row.num_drafts, num_refused, row.num_drafts);
  LMTP_CHECK(num_open == 0 || row.num_drafts == 0, num_open, row.num_drafts);
  sequence.num_computed += row.num_tokens - row.num_drafts - num_open;
  counters_.num_tokens_computed += row.num_tokens;
  // Prompts were charged when they were admitted.
  if (row.first_position >= sequence.num_prompt && !result.skipped) {
    shares_.serve(*sequence.account, std::max(1, row.num_logits - num_refused));
  }
  // Later requests often continue a prompt from its end: index its partial block too. Others may
  // wait for what a Score has of theirs.
  const bool prompt_done =
      row.first_position < sequence.num_prompt && sequence.num_computed >= sequence.num_prompt;
  index_computed(sequence, prompt_done || sequence.kind == RequestKind::kScore);
  if (sequence.kind == RequestKind::kEmbed && sequence.num_computed == sequence.length()) {
    events_.push_back(embedding_event(sequence, std::move(result.embedding)));
    return finish(sequence);
  }
  const bool was_withheld = sequence.is_end_withheld;
  if (give_tokens(sequence, row, result.tokens)) {
    if (sequence.kind == RequestKind::kGenerate) line_.keep_place(sequence);
    return finish(sequence);
  }
  if (row.num_drafts > 0) index_computed(sequence, false);
  sequence.blocks.pass(prefix_cache_, sequence.num_computed);
  if (sequence.kind == RequestKind::kScore) scores_.flush(sequence);  // others may wait for them
  if (sequence.is_controlled && row.draws() && !result.skipped) set_held(sequence, true);
  if (!result.forced.empty()) force(sequence, result.forced);
  if (was_withheld && !sequence.is_end_withheld) slots_.note_bias(sequence);
}

// Reports the tokens of a row. Whether the sequence ends by one of them.
bool Scheduler::give_tokens(Sequence& sequence, const PlanRow& row,
                            std::vector<TokenResult>& tokens) {
  const bool keeps_scores = scores_.begin_row(sequence);
  int num_given = 0;
  bool ends = false;
  for (TokenResult& token : tokens) {
    // The tokens that the row drew before this one were its drafts.
    if (row.num_drafts > 0) sequence.num_computed = sequence.length();
    TokenEvent entry = next_entry(sequence, std::move(token));
    if (keeps_scores) scores_.keep(sequence, entry.logprob, entry.listed_logprobs);
    ++num_given;
    ends = entry.finish_reason != FinishReason::kNone;
    events_.push_back({sequence.key, std::move(entry)});
    if (ends) break;
  }
  if (drafts_.is_on()) {
    const int num_accepted = std::max(0, num_given - row.num_scored - 1);
    counters_.num_accepted_drafts += num_accepted;
    counters_.num_refused_drafts += row.num_drafts - num_accepted;
    drafts_.count(sequence, row, num_accepted, steps_.number());
  }
  return ends;
}

TokenEvent Scheduler::next_entry(Sequence& sequence, TokenResult&& token) {
  TokenEvent entry{sequence.key.stream, token.token,  token.logprob,
                   FinishReason::kNone, std::nullopt, sequence.key.sample};
  ++sequence.num_emitted;
  entry.listed_logprobs = std::move(token.listed_logprobs);
  entry.measured = token.measured;
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
    if (entry.is_forced) ++counters_.num_generated_tokens;
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

// Reports the log probabilities that are known of a Score that does not run, as many as may be
// given. Whether it has ended by them.
bool Scheduler::recall(Sequence& sequence) {
  while (std::optional<TokenResult> known = scores_.next(sequence)) {
    ++counters_.num_cached_scores;
    TokenEvent entry = next_entry(sequence, std::move(*known));
    const bool ends = entry.finish_reason != FinishReason::kNone;
    events_.push_back({sequence.key, std::move(entry)});
    if (!ends) continue;
    if (!sequence.is_returning) {  // else its admission counted them
      counters_.num_prompt_tokens += sequence.num_prompt;
      counters_.num_cached_tokens += sequence.num_prompt;
    }
    finish(sequence);
    return true;
  }
  return false;
}

// What a Score has just computed may be all that another one waits for: a burst of equal ones
// computes it once. So may be what could not be given before.
void Scheduler::recall_waiting() {
  scores_.begin_round();
  for (std::size_t i = 0; i < waiting().size();) {
    Sequence& sequence = *waiting()[i];
    const int num_emitted = sequence.num_emitted;
    if (!sequence.is_held && recall(sequence)) continue;  // it waits no more
    if (sequence.num_emitted > num_emitted) line_.match(sequence);
    ++i;
  }
}

std::vector<SchedulerEvent>& Scheduler::recall_more() {
  LMTP_CHECK(!steps_.is_under_way());
  events_.clear();
  recall_waiting();
  return events_;
}

// Adds the blocks that have become full to the prefix cache; `with_tail`: the last, partial one
// too.
void Scheduler::index_computed(Sequence& sequence, bool with_tail) {
  const auto num_computed = static_cast<std::size_t>(sequence.num_computed);
  const cache::SequenceBlocks::Range replaced =
      sequence.blocks.index(prefix_cache_, sequence.name_space,
                            std::span(sequence.tokens).first(num_computed), with_tail);
  for (std::size_t i = replaced.begin; i < replaced.end; ++i) slots_.note_block(sequence, i);
}

// The sequence gives back everything that running takes.
void Scheduler::release(Sequence& sequence) {
  sequence.blocks.release(prefix_cache_);
  adapters_.leave(sequence);
  slots_.leave(sequence);
  line_.forget_refusal();
  sequence.num_computed = 0;
}

// Ends a sequence whose computed tokens are valid: they stay in the prefix cache.
void Scheduler::finish(Sequence& sequence) {
  index_computed(sequence, true);
  drop(sequence);
}

void Scheduler::drop(Sequence& sequence) {
  scores_.flush(sequence);
  release(sequence);
  steps_.discard_planned_row(sequence);
  if (sequence.status == SequenceStatus::kRunning) --sequence.account->num_running;
  if (sequence.status != SequenceStatus::kSuspended) shares_.leave(sequence);
  std::erase(running_, &sequence);
  line_.remove(sequence);
  sequences_.erase(sequence);
}

std::vector<SchedulerEvent>& Scheduler::abort(const Error& error) {
  LMTP_CHECK(steps_.is_under_way());
  events_.clear();
  PlannedSteps::Planned& failed = steps_.current();
  end_step();
  steps_.ahead().clear();
  for (Sequence* sequence : failed.sequences) {
    if (sequence == nullptr) continue;
    events_.push_back(error_event(*sequence, error));
    drop(*sequence);  // copies and writes of the failed step may not have happened
  }
  failed.clear();
  // The agent may not know what the plan said of the others: all of them start anew.
  while (!running_.empty()) requeue(*running_.back());
  adapters_.free_all();
  // Moves from and to the host may not have been made, and others may have those blocks since.
  if (prefix_cache_.host().num_total() > 0) prefix_cache_.clear();
  return events_;
}

void Scheduler::send_changes(StepPlan& plan) {
  slots_.send(plan);
  // Before the plan's own copies: what those read may have come from the host.
  std::size_t at = 0;
  for (const cache::BlockMove& move : prefix_cache_.moves()) {
    plan.copies.insert(plan.copies.begin() + static_cast<std::ptrdiff_t>(at++),
                       {move.from, move.to, kBlockSize});
    counters_.num_swapped_out += move.to > pool_.num_total() ? 1 : 0;
  }
  prefix_cache_.clear_moves();
}

void Scheduler::end_step() {
  for (const BlockId block : steps_.current().copy_sources) {
    pool_.unpin(block, prefix_cache_.is_indexed(block));
  }
  steps_.current().copy_sources.clear();
  steps_.end();
}

}  // namespace lmtp::scheduler

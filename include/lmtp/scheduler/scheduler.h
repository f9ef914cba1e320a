// Scheduler: decides what each step computes, and keeps sequences and KV blocks straight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/cache/block_pool.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/request/event.h"
#include "lmtp/request/sampling_changes.h"
#include "lmtp/scheduler/adapter_places.h"
#include "lmtp/scheduler/cache_scopes.h"
#include "lmtp/scheduler/counters.h"
#include "lmtp/scheduler/draft_policy.h"
#include "lmtp/scheduler/fair_shares.h"
#include "lmtp/scheduler/live_sequences.h"
#include "lmtp/scheduler/options.h"
#include "lmtp/scheduler/planned_steps.h"
#include "lmtp/scheduler/running_slots.h"
#include "lmtp/scheduler/score_recall.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_budget.h"
#include "lmtp/scheduler/step_plan.h"
#include "lmtp/scheduler/waiting_line.h"

namespace lmtp::scheduler {

// A token or an error of a stream; the first entry that ends the stream is its last.
struct SchedulerEvent {
  StreamKey key;
  std::variant<TokenEvent, StreamError> entry;
};

// Iteration-level scheduling (Orca, Yu et al. 2022) without phases (vLLM's unified scheduler):
// every sequence only has a cursor that catches up with its length. A step gives one token to each
// running decode; what is left goes to running prefills and to admissions.
//
// Its parts decide, each by itself: WaitingLine who is admitted next, StepBudget how much of a step
// each kind of sequence gets, FairShares for whom others are preempted, AdapterPlaces which
// adapters run, ScoreRecall which log probabilities are known, DraftPolicy which tokens are tried.
// The Scheduler moves sequences between them, and takes and gives back blocks.
//
// - An admission takes everything that the sequence needs up to its next token, or nothing.
// - Out of blocks: the youngest running sequence is preempted; it keeps its tokens and resumes by
//   recomputing what the prefix cache does not hold any more.
// - For a client that waits and runs less than its part, the youngest sequence of the client that
//   runs most is preempted; at once where it runs nothing.
// - With batch.max_total_tokens none is preempted: a sequence is admitted if all that it and the
//   running ones may come to have fits.
//
// Owner: the Engine; all calls on its thread. plan() and commit() or abort() alternate; after
// plan_ahead() the first commit() is followed by another one, by abort(), or by plan_ahead().
class Scheduler final : private WaitingLine::Host {
 public:
  // Blocks that one sequence of the whole context needs, kNullBlock included.
  static int min_blocks(int context_length, const KvLayout& layout = {});

  // REQUIRES: options.num_blocks >= min_blocks(options.context_length, options.kv_layout), and
  // options.batch.max_total_tokens is 0 or not less than the context.
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a sequence; fills in its id and its limits. Returns the events that need no model (of a
  // Score, the first token where there is no prompt, and what the score cache has), which may end
  // it. REQUIRES: key is not live; tokens, num_prompt, kind, params are set and were checked.
  std::vector<SchedulerEvent>& add(std::unique_ptr<Sequence> sequence);

  // Ends a sequence in any state and frees its blocks. False if the key is not live.
  bool remove(StreamKey key);

  // Edits of live sequences, between two steps. Each goes through the prefix cache: nothing is
  // computed again but what that does not hold and the token before the next one, and the bits are
  // those of a new request for the same tokens. An error (kInvalid, with what is allowed) changes
  // nothing.

  // Drops the last tokens of a Generate, generated ones and then the prompt's, and appends others
  // to the rest. Those are reported like drawn ones, count as generated and end nothing; at least
  // one is drawn after them. REQUIRES: num_dropped >= 0.
  Result<void> backtrack(StreamKey key, std::int64_t num_dropped,
                         std::span<const TokenId> appended);
  Result<void> append(StreamKey key, std::span<const TokenId> tokens) {
    return backtrack(key, 0, tokens);
  }
  Result<void> truncate(StreamKey key, int num_dropped) { return backtrack(key, num_dropped, {}); }

  // The most forks of one sequence, over its life.
  static constexpr int kMaxForks = 64;

  // Queues a Generate with the tokens of another one so far, generated ones included, which count
  // for its max_tokens too. Unless a seed is among the changes, it draws by splitmix64(the other's
  // seed, the number of the fork: 1 is the first). Returns the first event of the fork's stream.
  Result<ForkBegun> fork(StreamKey from, StreamKey to, const SamplingChanges& changes = {});

  // The sequence of a row of a plan that is not committed yet. Null where it has ended, or was set
  // back, since the plan was made ahead: the row's result is ignored.
  const Sequence* sequence_of(const StepPlan& plan, std::size_t row) const {
    return (&plan == &steps_.ahead().plan ? steps_.ahead() : steps_.current()).sequences[row];
  }

  // A held sequence keeps its place and its blocks, but gets no row. One that is controlled is held
  // by each commit in which it drew a token, or its row was. REQUIRES: the key is live.
  void hold(StreamKey key);
  void release(StreamKey key);

  // From its next token on. REQUIRES: the key is live.
  void set_temperature(StreamKey key, float temperature);

  // A suspended sequence holds no blocks and is not looked at until it is resumed.
  Result<void> suspend(StreamKey key);
  Result<void> resume(StreamKey key);

  // The next step; empty if nothing can run. Valid until commit or abort.
  const StepPlan& plan(const StepLimits& limits = {});

  // The step after the one that is being executed, whose drawn tokens are not known yet
  // (PlanRow::input_row): the next tokens of each running sequence that will not have all by then.
  // One that reaches its min_tokens is left out. Empty if the next step cannot be known yet: a
  // sequence waits that may be admitted or have others preempted, or one would need a block that
  // only a preemption frees. Steps write keys and values in order, so what is written for a
  // sequence that turns out to have ended is overwritten later. Valid until it is committed or
  // aborted; the commit before makes it the plan.
  // REQUIRES: plan() was not empty, there is no plan ahead, and max_drafts is 0.
  const StepPlan& plan_ahead(const StepLimits& limits = {});

  // How many log probabilities that are known from before add() and commit() give from here on: so
  // many take time, and memory until clients have read them. Scores that lack more wait for the
  // next commit(), or recall_more() where there is nothing else to compute.
  // REQUIRES: num_scores >= 0.
  void set_recalls(int num_scores) { scores_.set_limit(num_scores); }
  bool lacks_recalls() const { return scores_.is_lacking(); }
  // The events are valid as commit()'s. REQUIRES: there is no step.
  std::vector<SchedulerEvent>& recall_more();

  // When what the next commit() gives has been computed; it never goes back. For KeptPlaces alone.
  void set_time(KeptPlaces::Clock::time_point now) { line_.set_time(now); }

  // Takes the result of the plan's execution; what is left of it is memory for the next one. The
  // events are valid until the next add(), commit() or abort().
  std::vector<SchedulerEvent>& commit(StepResult& result);
  std::vector<SchedulerEvent>& commit(StepResult&& result) { return commit(result); }

  // The plan's execution failed: its sequences end with this error, the others go on. A plan ahead
  // is dropped.
  std::vector<SchedulerEvent>& abort(const Error& error);

  // Those that wait, in the order in which they would be admitted if nothing else came.
  std::vector<StreamKey> waiting_order() const { return line_.order(steps_.number()); }

  // Null where it is not live. Valid until the next commit, or command.
  const Sequence* sequence(StreamKey key) const { return sequences_.find(key); }
  int num_waiting() const { return static_cast<int>(waiting().size()); }
  // Tokens of waiting sequences, cached ones included.
  int num_waiting_tokens() const;
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_suspended() const { return sequences_.size() - num_waiting() - num_running(); }
  int num_held() const { return sequences_.num_held(); }
  // Whether no step would compute anything.
  bool idle() const { return num_waiting() + num_running() == num_held(); }
  // The names of the adapters of what runs, or waits, comma-separated.
  std::string running_adapters() const { return adapters_.names(running_); }
  std::string waiting_adapters() const { return adapters_.names(waiting()); }
  const cache::BlockPool& pool() const { return pool_; }
  const KvLayout& kv_layout() const { return options_.kv_layout; }
  const cache::ScoreCache& score_cache() const { return scores_.cache(); }
  const cache::BlockPool& host_pool() const { return prefix_cache_.host(); }
  const SchedulerCounters& counters() const { return counters_; }

  // Aborts if blocks, trie and sequences do not agree; for debug builds and tests. Between steps.
  void check_invariants() const;

 private:
  using Admission = WaitingLine::Admission;

  const std::vector<Sequence*>& waiting() const { return line_.sequences(); }
  bool has_total() const { return options_.batch.max_total_tokens > 0; }
  // max_tokens, or what the context leaves.
  int generated_max(const SamplingParams& params, int num_prompt) const {
    return std::min(params.max_tokens, options_.context_length - num_prompt);
  }

  void plan_decodes();
  void plan_prefills();
  void plan_prefill(Sequence& sequence, int most);
  void plan_drafts();
  bool plan_row(Sequence& sequence, int num_tokens);
  bool reserve(Sequence& sequence, int num_tokens);
  void send_changes(StepPlan& plan);
  void end_step();

  Admission admit(Sequence& sequence) override;
  void take_matched(Sequence& sequence, const cache::PrefixMatch& match);
  void note_recomputed(const Sequence& sequence, int num_matched);
  bool is_within_total(const Sequence& sequence) const;
  bool fits(const Sequence& sequence, const cache::PrefixMatch& match, int num_tokens,
            int num_freed = 0) const;
  int blocks_expected(const Sequence& sequence) const;
  int blocks_of_appended() const;
  void check_blocks(const Sequence& sequence) const;

  void preempt_for_clients();
  void preempt_for(Sequence& claimant, int part);
  int num_freed_at_most(int part) const;
  void preempt(Sequence& victim);
  void requeue(Sequence& sequence);

  void commit_row(Sequence& sequence, const PlanRow& row, RowResult& result);
  bool give_tokens(Sequence& sequence, const PlanRow& row, std::vector<TokenResult>& tokens);
  TokenEvent next_entry(Sequence& sequence, TokenResult&& token);
  bool recall(Sequence& sequence);
  void recall_waiting();
  void index_computed(Sequence& sequence, bool with_tail);
  void release(Sequence& sequence);
  void finish(Sequence& sequence);
  void drop(Sequence& sequence);

  Result<Sequence*> find(StreamKey key);
  Result<Sequence*> find_generate(StreamKey key);
  Result<void> check_append(const Sequence& sequence, int num_dropped,
                            std::span<const TokenId> appended) const;
  void cut(Sequence& sequence, int num_dropped);
  void set_held(Sequence& sequence, bool held);
  void force(Sequence& sequence, std::span<const TokenId> tokens);

  const SchedulerOptions options_;
  cache::BlockPool pool_;
  cache::PrefixCache prefix_cache_;
  LiveSequences sequences_;
  std::vector<Sequence*> running_;  // in order of admission
  AdapterPlaces adapters_;
  CacheScopes scopes_;
  ScoreRecall scores_;
  FairShares shares_;
  StepBudget budget_;
  WaitingLine line_;
  DraftPolicy drafts_;
  RunningSlots slots_;
  PlannedSteps steps_;
  SchedulerCounters counters_ = options_.counters;
  std::vector<SchedulerEvent> events_;  // of the last call that gave any
};

}  // namespace lmtp::scheduler

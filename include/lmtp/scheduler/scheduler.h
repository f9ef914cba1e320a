// Scheduler: decides what each step computes, and keeps sequences and KV blocks straight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/cache/block_pool.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/request/event.h"
#include "lmtp/request/sampling_changes.h"
#include "lmtp/scheduler/adapter_places.h"
#include "lmtp/scheduler/counters.h"
#include "lmtp/scheduler/draft_policy.h"
#include "lmtp/scheduler/fair_shares.h"
#include "lmtp/scheduler/kept_places.h"
#include "lmtp/scheduler/options.h"
#include "lmtp/scheduler/running_slots.h"
#include "lmtp/scheduler/score_recall.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_budget.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// A token or an error of a stream; the first entry that ends the stream is its last.
struct SchedulerEvent {
  StreamKey key;
  std::variant<TokenEvent, StreamError> entry;
};

// Iteration-level scheduling (Orca, Yu et al. 2022) without phases (vLLM's unified scheduler):
// every sequence only has a cursor that catches up with its length. A step gives, under one budget
// of batch.max_tokens: one token to each running decode; then a share each to prefills and to
// admissions of sequences that are almost entirely cached.
//
// - What a step computes besides decodes is bounded by the limits given to plan(), so that a long
//   prompt delays neither running streams nor new ones.
// - Admission order: where a share runs more than its part, those whose share runs nothing, though
//   not in two steps in a row; then sequences that have run before, or whose prompts go on with a
//   stream that ended 50 ms before at most (KeptPlaces), as long as their share (Sequence::share)
//   runs less than its part; then the share that was served least; within it the connections in
//   turn, and of each sequences that have waited long, then the longest cached prefix, then age.
//   Admission ends with the first sequence that does not fit, but for those first ones.
// - A running prefill leaves half of the prefills' share to shorter ones.
// - A sequence waits while a running one computes a prefix that both have.
// - The log probabilities of a Score that are known from before (cache::ScoreCache) are given to it
//   as it comes, or when others have computed them while it waits. What is then left is computed.
// - Out of blocks: the youngest running sequence is preempted; it keeps its tokens and resumes by
//   recomputing what the prefix cache does not hold any more.
// - What is evicted goes to blocks of the host, where there are any, and comes back where that is
//   faster than computing it (StepLimits::fetched). A preempted sequence is one case of it.
// - A sequence with an adapter runs where its weights have blocks, and no more adapters than
//   batch.max_adapters have sequences that run. The weights of idle ones stay in their blocks until
//   these are needed.
// - Where drafts are asked for, a row that draws has tokens behind its own that may be drawn next,
//   of what the others leave of a step. What is drawn is the same with and without.
// - For a share that waits and runs less than its part, the youngest sequence of the share that
//   runs most is preempted; at once where it runs nothing.
// - With batch.max_total_tokens none is preempted: a sequence is admitted if all that it and the
//   running ones may come to have fits.
//
// Owner: the Engine; all calls on its thread. plan() and commit() or abort() alternate; after
// plan_ahead() the first commit() is followed by another one, by abort(), or by plan_ahead().
class Scheduler {
 public:
  // Blocks that one sequence of the whole context needs, kNullBlock included.
  static int min_blocks(int context_length);

  // REQUIRES: options.num_blocks >= min_blocks(options.context_length), and
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

  // Drops the last tokens of a Generate, generated ones and then the prompt's, and puts others
  // behind the rest. Those are reported like drawn ones, count as generated and end nothing; one
  // at least is drawn behind them. REQUIRES: num_dropped >= 0.
  Result<void> backtrack(StreamKey key, std::int64_t num_dropped,
                         std::span<const TokenId> appended);
  Result<void> append(StreamKey key, std::span<const TokenId> tokens) {
    return backtrack(key, 0, tokens);
  }
  Result<void> truncate(StreamKey key, int num_dropped) { return backtrack(key, num_dropped, {}); }

  // Of one sequence, over its life.
  static constexpr int kMaxForks = 64;

  // Queues a Generate with the tokens of another one so far, generated ones included, which count
  // for its max_tokens too. Unless a seed is among the changes, it draws by splitmix64(the other's
  // seed, the number of the fork: 1 is the first). Returns the first event of the fork's stream.
  Result<ForkBegun> fork(StreamKey from, StreamKey to, const SamplingChanges& changes = {});

  // Of a row of a plan that is not committed yet. Null where the sequence has ended, or was set
  // back, since the plan was made ahead: the row's result is ignored.
  const Sequence* sequence_of(const StepPlan& plan, std::size_t row) const {
    return (&plan == &ahead().plan ? ahead() : current()).sequences[row];
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
  void set_time(KeptPlaces::Clock::time_point now) { now_ = now; }

  // Takes the result of the plan's execution; what is left of it is memory for the next one. The
  // events are valid until the next add(), commit() or abort().
  std::vector<SchedulerEvent>& commit(StepResult& result);
  std::vector<SchedulerEvent>& commit(StepResult&& result) { return commit(result); }

  // The plan's execution failed: its sequences end with this error, the others go on. A plan ahead
  // is dropped.
  std::vector<SchedulerEvent>& abort(const Error& error);

  // Those that wait, in the order in which they would be admitted if nothing else came.
  std::vector<StreamKey> waiting_order() const;

  // Null where it is not live. Valid until the next commit, or command.
  const Sequence* sequence(StreamKey key) const { return live(key); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  // Tokens of waiting sequences, cached ones included.
  int num_waiting_tokens() const;
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_suspended() const {
    return static_cast<int>(sequences_.size()) - num_waiting() - num_running();
  }
  int num_held() const { return num_held_; }
  // Whether no step would compute anything.
  bool idle() const { return num_waiting() + num_running() == num_held_; }
  // The names of the adapters of what runs, or waits, comma-separated.
  std::string running_adapters() const { return adapters_.names(running_); }
  std::string waiting_adapters() const { return adapters_.names(waiting_); }
  const cache::BlockPool& pool() const { return pool_; }
  const cache::ScoreCache& score_cache() const { return scores_.cache(); }
  const cache::BlockPool& host_pool() const { return prefix_cache_.host(); }
  const SchedulerCounters& counters() const { return counters_; }

  // Aborts if blocks, trie and sequences do not agree; for debug builds and tests. Between steps.
  void check_invariants() const;

 private:
  enum class Admission { kAdmitted, kDeferred, kRefused };
  struct Planned {
    StepPlan plan;
    // Of its rows. Null where the sequence has ended, or was set back, since it was made.
    std::vector<Sequence*> sequences;

    void clear() {
      plan.clear();
      sequences.clear();
    }
  };
  using Queues = std::unordered_map<ConnectionId, std::vector<Sequence*>>;

  void preempt_for_shares();
  void preempt_for(Sequence& claimant, int share);
  int num_freed_at_most(int share) const;

  bool has_waiting() const;
  bool may_plan_ahead() const;
  void refresh_hints();
  void plan_decodes();
  void plan_prefills();
  void plan_prefill(Sequence& sequence, int most);
  void plan_admissions();
  void plan_drafts();
  bool plan_row(Sequence& sequence, int num_tokens);
  void send_changes(StepPlan& plan);
  bool reserve(Sequence& sequence, int num_tokens);
  void preempt(Sequence& victim);
  void requeue(Sequence& sequence);
  void unplan(const Sequence& sequence);

  int max_running() const;
  bool may_admit() const;
  bool has_place() const;
  void admit_in_order();
  bool has_waited_long_for_blocks() const;
  bool admit_first_ones();
  bool has_total() const { return options_.batch.max_total_tokens > 0; }
  bool is_within_total(const Sequence& sequence) const;
  bool precedes_others(const Sequence& sequence) const;
  std::vector<Sequence*> candidates() const;
  Queues by_share(const std::vector<Sequence*>& order) const;
  void admit_by_shares(const std::vector<Sequence*>& order);
  Admission refuse();
  Admission admit(Sequence& sequence);
  cache::PrefixMatch match_prefix(Sequence& sequence);
  bool another_computes_prefix(const Sequence& sequence, int num_matched) const;
  void take_matched(Sequence& sequence, const cache::PrefixMatch& match);
  bool fits(const Sequence& sequence, const cache::PrefixMatch& match, int num_tokens,
            int num_freed = 0) const;
  int blocks_expected(const Sequence& sequence) const;

  Sequence* live(StreamKey key) const {
    const auto found = sequences_.find(key);
    return found != sequences_.end() ? found->second.get() : nullptr;
  }
  Result<Sequence*> find(StreamKey key);
  Result<Sequence*> find_generate(StreamKey key);
  Result<void> check_append(const Sequence& sequence, int num_dropped,
                            std::span<const TokenId> appended) const;
  void cut(Sequence& sequence, int num_dropped);
  void set_held(Sequence& sequence, bool held);
  void force(Sequence& sequence, std::span<const TokenId> tokens);
  // max_tokens, or what the context leaves.
  int generated_max(const SamplingParams& params, int num_prompt) const {
    return std::min(params.max_tokens, options_.context_length - num_prompt);
  }

  void commit_row(Sequence& sequence, const PlanRow& row, RowResult& result);
  bool give_tokens(Sequence& sequence, const PlanRow& row, std::vector<TokenResult>& tokens);
  TokenEvent next_entry(Sequence& sequence, TokenResult&& token);
  bool recall(Sequence& sequence);
  void recall_waiting();
  void index_computed(Sequence& sequence, bool with_tail);
  void replace_block(Sequence& sequence, std::size_t index, BlockId node);
  void release(Sequence& sequence);
  void finish(Sequence& sequence);
  void drop(Sequence& sequence);
  void end_plan();
  bool void_row_ahead(const Sequence& sequence);  // whether there was one

  Planned& current() { return plans_[current_]; }
  const Planned& current() const { return plans_[current_]; }
  Planned& ahead() { return plans_[1 - current_]; }
  const Planned& ahead() const { return plans_[1 - current_]; }

  const SchedulerOptions options_;
  cache::BlockPool pool_;
  cache::PrefixCache prefix_cache_;
  AdapterPlaces adapters_;
  ScoreRecall scores_;
  FairShares shares_;
  StepBudget budget_;
  DraftPolicy drafts_;
  RunningSlots slots_;
  std::unordered_map<StreamKey, std::unique_ptr<Sequence>, StreamKeyHash> sequences_;
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> running_;  // in order of admission
  SchedulerCounters counters_ = options_.counters;

  // Of the step being planned or executed.
  Planned plans_[2];  // and of the step after it: see current() and ahead()
  int current_ = 0;
  Planned* making_ = nullptr;           // the one that is being planned
  std::vector<SchedulerEvent> events_;  // of the last call that gave any
  std::vector<BlockId> copy_sources_;   // pinned until the step is over
  bool admissions_over_ = false;        // a sequence was preempted, or did not fit
  bool has_refused_ = false;      // the last plan: what waits does not fit, and nothing has ended
  bool first_ones_wait_ = false;  // of a share that runs nothing, for tokens or others' prefix
  bool lacks_blocks_ = false;     // the plan at hand did
  bool in_step_ = false;

  int num_held_ = 0;
  KeptPlaces kept_places_;
  KeptPlaces::Clock::time_point now_;
  SequenceId next_id_ = 1;
  std::size_t next_hint_ = 0;  // index in waiting_ of the next hint to refresh
  std::int64_t step_ = 0;
  bool first_ones_came_first_ = false;  // admit_first_ones(), in the last plan_admissions()
  double mean_generated_ = 16.0;        // moving average of finished Generates
};

}  // namespace lmtp::scheduler

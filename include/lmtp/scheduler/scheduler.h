// Scheduler: decides what each step computes, and keeps sequences and KV blocks straight.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/base/batch_limits.h"
#include "lmtp/base/ids.h"
#include "lmtp/cache/block_pool.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/request/event.h"
#include "lmtp/scheduler/counters.h"
#include "lmtp/scheduler/debug_options.h"
#include "lmtp/scheduler/sequence.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::scheduler {

// REQUIRES of each number what its comment says; Scheduler's constructor checks it.
struct SchedulerOptions {
  int num_blocks = 0;      // of the pool, kNullBlock included
  int context_length = 0;  // the pool must hold one such sequence: see min_blocks
  BatchLimits batch;       // of a step
  std::vector<TokenId> eos_ids;
  DebugOptions debug;
  SchedulerCounters counters;  // to count on from
};

// What happened to a stream; the first entry that ends it is its last.
struct SchedulerEvent {
  StreamKey key;
  std::variant<TokenEvent, StreamError> entry;
};

// Iteration-level scheduling (Orca, Yu et al. 2022) without phases (vLLM's unified scheduler):
// every sequence only has a cursor that catches up with its length. A step gives, under one budget
// of batch.max_tokens: one token to each running decode; then a share each to prefills and to
// admissions of what is all but cached.
//
// - What a step computes besides decodes is bounded by what the caller of plan() allows, so that a
//   long prompt holds up neither the streams that others are reading nor those that come.
// - Admission order: preempted sequences; then the connection that was served least; within it
//   those that wait for long, then the longest cached prefix, then age. It ends with the first that
//   finds no room.
// - A running prefill leaves half of the prefills' share to shorter ones.
// - A sequence whose prefix another one is computing at that moment waits until it can share it.
// - Out of blocks: the youngest running sequence is preempted; it keeps its tokens and resumes by
//   recomputing what the prefix cache does not hold any more.
// - A connection that waits beneath its share of what runs has the youngest sequence of the largest
//   holder preempted.
//
// Owner: the Engine; all calls on its thread. plan() and commit() or abort() alternate; but behind
// plan_ahead() the first commit() is followed by another one or by abort(), or by plan_ahead().
class Scheduler {
 public:
  // Blocks without which one sequence of the whole context could not run.
  static int min_blocks(int context_length);

  // REQUIRES: options.num_blocks >= min_blocks(options.context_length).
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a sequence; fills in its id and its limits. Returns the events that need no model (the
  // first token of a Score without a prompt).
  // REQUIRES: key is not live; tokens, num_prompt, kind, params are set and were checked.
  std::vector<SchedulerEvent> add(std::unique_ptr<Sequence> sequence);

  // Ends a sequence in whatever state, frees its blocks. False where the key is not live.
  bool remove(StreamKey key);

  // The next step; empty where nothing can run. Valid until commit or abort.
  const StepPlan& plan(const StepLimits& limits = {});

  // The step behind the one that is being executed, before it is known what that one draws: one
  // token more of each sequence that will not have all its tokens by then (PlanRow::follows). Empty
  // where it cannot be said yet what comes next: something waits, prefills or scores, has penalties
  // (which look at the tokens before), or would need a block that only a preemption gives.
  // Valid until it is committed, aborted, or the commit before it: commit() makes it the plan.
  // REQUIRES: plan() was not empty, and there is no plan ahead. The steps write keys and values in
  // order: what a sequence that turns out to have ended still writes, a later step writes over.
  const StepPlan& plan_ahead();

  // Takes over what the plan's execution gave.
  std::vector<SchedulerEvent> commit(StepResult result);

  // The plan's execution failed: its sequences end with this error, the others go on. A plan ahead
  // is dropped.
  std::vector<SchedulerEvent> abort(const Error& error);

  bool contains(StreamKey key) const { return sequences_.contains(key); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  // Tokens of waiting sequences, cached ones included.
  int num_waiting_tokens() const;
  int num_running() const { return static_cast<int>(running_.size()); }
  bool idle() const { return sequences_.empty(); }
  const cache::BlockPool& pool() const { return pool_; }
  const SchedulerCounters& counters() const { return counters_; }

  // Aborts where blocks, trie and sequences do not agree; for debug builds and tests. Between
  // steps.
  void check_invariants() const;

 private:
  // A connection's share: tokens served to it, on a clock that all connections share (start-time
  // fair queueing, Goyal et al. 1996).
  struct Share {
    std::int64_t served = 0;
    int num_sequences = 0;  // >= 1
    int num_running = 0;    // of those
  };
  enum class Admission { kAdmitted, kDeferred, kRefused };

  void join_share(ConnectionId connection);
  void leave_share(ConnectionId connection);
  void make_way();
  void make_way_for(Sequence& claimant, int share);
  Sequence* next_to_leave(int share, const std::vector<Sequence*>& leaving) const;

  void refresh_hints();
  void divide(const StepLimits& limits);
  void plan_decodes();
  void plan_prefills();
  void plan_prefill(Sequence& sequence, int most);
  bool is_prefill(const Sequence& sequence) const;
  void plan_admissions();
  bool plan_row(Sequence& sequence, int num_tokens);
  bool add_ahead(int follows);
  bool reserve(Sequence& sequence, int num_tokens);
  void preempt(Sequence& victim);
  void unplan(const Sequence& sequence);

  int num_seats() const;
  bool may_admit() const;
  std::vector<Sequence*> candidates() const;
  void admit_by_shares(const std::vector<Sequence*>& order);
  int tokens_for(const Sequence& sequence, int num_missing) const;
  void spend(int num_tokens, int num_missing);
  Admission admit(Sequence& sequence);
  cache::PrefixMatch match_prefix(Sequence& sequence);
  bool another_computes_prefix(const Sequence& sequence, int num_matched) const;
  void take_matched(Sequence& sequence, const cache::PrefixMatch& match);
  bool room_for(const cache::PrefixMatch& match, int num_tokens, int num_more = 0) const;
  int blocks_expected(const Sequence& sequence) const;

  void commit_row(const PlanRow& row, RowResult& result, std::vector<SchedulerEvent>& events);
  TokenEvent next_entry(Sequence& sequence, TokenResult&& token);
  void index_computed(Sequence& sequence, bool with_tail);
  void adopt(Sequence& sequence, int block_index, BlockId node);
  void release(Sequence& sequence);
  void finish(Sequence& sequence);
  void drop(Sequence& sequence);
  void end_plan();

  const SchedulerOptions options_;
  cache::BlockPool pool_;
  cache::PrefixCache prefix_cache_;
  std::unordered_map<StreamKey, std::unique_ptr<Sequence>, StreamKeyHash> sequences_;
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> running_;                              // in order of admission
  std::unordered_map<ConnectionId, Share> shares_;              // of those with sequences
  std::unordered_map<ConnectionId, std::int64_t> idle_served_;  // of others, where above the clock
  SchedulerCounters counters_ = options_.counters;

  // Of the step being planned or executed.
  StepPlan plan_;
  StepPlan ahead_;                     // of the step behind it
  std::vector<BlockId> copy_sources_;  // pinned until the step is over
  std::vector<Sequence*> claimants_;   // for whom others made way
  int prefill_left_ = 0;               // tokens that may still be planned for prefills
  int cached_left_ = 0;                // the same for what is all but cached
  // Of prefill_left_, for those that wait: what no running prefill needs, and what the oldest one
  // leaves to those that are shorter than all that run.
  int prefill_spare_ = 0;
  int prefill_yield_ = 0;
  int shortest_prefill_ = 0;
  bool admissions_over_ = false;  // something was preempted, or found no room
  bool in_step_ = false;

  SequenceId next_id_ = 1;
  std::size_t next_hint_ = 0;  // of waiting_, to be refreshed
  std::int64_t step_ = 0;
  std::int64_t served_clock_ = 0;  // the least served connection's share; never goes back
  double mean_generated_ = 16.0;   // moving average of finished Generates
};

}  // namespace lmtp::scheduler

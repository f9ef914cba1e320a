// BatchMates: streams that arrive at an engine by a script, and the results that each gets.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lmtp/engine/engine.h"
#include "lmtp/request/request.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::numerics {

// Streams that arrive one after another; the first of a phase when all streams of earlier phases
// have had their first token, or have ended.
struct Phase {
  std::vector<Request> streams;
  std::vector<int> gaps;  // [streams.size()] steps after the stream before
  bool waits_for_end = false;
  bool of_batch = false;  // these are reported; the others are their batch mates
};

struct StreamOutcome {
  std::vector<TokenEvent> entries;
  std::string error;    // empty: none
  int num_started = 0;  // by a plan
  bool ended = false;
  bool is_edited = false;
  std::vector<StreamOutcome> forks = {};  // what its client has of each, shared tokens included

  // What was dropped from runs again as well.
  bool is_preempted() const { return num_started > (is_edited && forks.empty() ? 2 : 1); }
};

// Whether streams of the batch that generate are edited while they run. One of two is forked into
// four with its own seed, if forks are wanted; of the others a few tokens are dropped and some of
// those that were known are put back.
enum class Edits { kNone, kBacktracks, kAll };

// Results from the arrival of the batch's first stream on, by the engine's counters and its plans.
struct BatchReport {
  std::vector<StreamOutcome> outcomes;  // of the batch
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_partial_hits = 0;
  std::int64_t num_preemptions = 0;
  std::int64_t num_scored_tokens = 0;
  std::int64_t num_accepted_drafts = 0;
  std::int64_t num_refused_drafts = 0;
  std::int64_t num_failed_steps = 0;
  int max_rows = 0;        // streams in one step
  int max_batch_rows = 0;  // of them, the batch's
  int max_chunk = 0;       // tokens of one of the batch's streams in one step
};

// Arrivals are timed in steps: each is submitted inside a step, so that the same script gives the
// same steps. Owner: shared with the requests in flight, as their sink.
class BatchMates : public EventSink, public std::enable_shared_from_this<BatchMates> {
 public:
  // REQUIRES: at least one phase, none of them empty; those of the batch come last, one at least.
  explicit BatchMates(std::vector<Phase> phases, Edits edits = Edits::kNone);

  // Runs the script on a new engine of that agent; returns when all streams have ended. Once.
  BatchReport run(const engine::ModelLimits& limits, const engine::EngineOptions& options,
                  std::unique_ptr<scheduler::ModelAgent> agent);

  void deliver(std::span<StreamEvent> events) override;

 private:
  class WatchedAgent;

  // On the engine's thread, before a step is executed.
  void before_step(const scheduler::StepPlan& plan);
  // All below with mutex_ held.
  void submit_due();
  void submit_next();
  bool may_enter_next_phase() const;
  void note_keys(const scheduler::StepPlan& plan);
  void count_rows(const scheduler::StepPlan& plan);
  void edit_due(const scheduler::StepPlan& plan);
  void backtrack(std::size_t stream, const scheduler::PlanRow& row);
  void fork(std::size_t stream);
  StreamOutcome& outcome_of(StreamId id);
  bool all_submitted() const { return next_ == order_.size(); }
  void take(const TokenEvent& entry);
  void end(StreamId id);

  // A stream's number is its index here.
  struct Arrival {
    Request request;
    int gap = 0;
    std::size_t phase = 0;
    std::uint64_t seed = 0;
  };
  const std::vector<Phase> phases_;
  const Edits edits_;
  std::vector<Arrival> order_;
  std::size_t batch_begin_ = 0;  // index of the batch's first stream

  std::mutex mutex_;
  std::condition_variable idle_;
  engine::Engine* engine_ = nullptr;
  bool runs_ahead_ = false;
  std::vector<std::size_t> stream_of_slot_;
  std::vector<StreamOutcome> outcomes_;  // [order_.size()]
  std::size_t next_ = 0;                 // to be submitted
  int num_live_ = 0;
  int step_ = 0;
  int due_step_ = 0;
  engine::EngineStats before_;  // when the batch began
  BatchReport report_;
};

}  // namespace lmtp::numerics

#include "batch_mates.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "lmtp/base/check.h"

namespace lmtp::numerics {

// Wraps the real agent and calls before_step() before each step.
class BatchMates::WatchedAgent : public scheduler::ModelAgent {
 public:
  WatchedAgent(std::unique_ptr<scheduler::ModelAgent> agent, BatchMates& batch_mates)
      : agent_(std::move(agent)), batch_mates_(batch_mates) {}

  scheduler::AgentInfo info() const override { return agent_->info(); }
  bool runs_ahead() const override { return agent_->runs_ahead(); }
  Result<void> forward(const scheduler::StepPlan& plan) override {
    batch_mates_.before_step(plan);
    return agent_->forward(plan);
  }
  Result<void> choose(std::span<const scheduler::RowMask> masks) override {
    return agent_->choose(masks);
  }
  Result<scheduler::StepResult> collect() override { return agent_->collect(); }
  bool is_lost() const override { return agent_->is_lost(); }

 private:
  std::unique_ptr<scheduler::ModelAgent> agent_;
  BatchMates& batch_mates_;
};

BatchMates::BatchMates(std::vector<Phase> phases) : phases_(std::move(phases)) {
  LMTP_CHECK(!phases_.empty() && phases_.back().of_batch);
  for (std::size_t phase = 0; phase < phases_.size(); ++phase) {
    const Phase& from = phases_[phase];
    LMTP_CHECK(!from.streams.empty() && from.gaps.size() == from.streams.size(), phase,
               from.streams.size(), from.gaps.size());
    if (!from.of_batch) batch_begin_ += from.streams.size();
    LMTP_CHECK(from.of_batch || batch_begin_ == order_.size() + from.streams.size(), phase);
    for (std::size_t i = 0; i < from.streams.size(); ++i) {
      order_.push_back({from.streams[i], from.gaps[i], phase});
    }
  }
  outcomes_.resize(order_.size());
}

BatchReport BatchMates::run(const engine::ModelLimits& limits, const engine::EngineOptions& options,
                            std::unique_ptr<scheduler::ModelAgent> agent) {
  engine::Engine engine(std::make_unique<WatchedAgent>(std::move(agent), *this), limits, options);
  std::unique_lock lock(mutex_);
  engine_ = &engine;
  while (true) {
    idle_.wait(lock, [this] { return num_live_ == 0; });
    if (all_submitted()) break;
    // Nothing is running, so no step would submit the next stream. Only one: others that are due
    // are submitted in its first step.
    submit_next();
  }
  const engine::EngineStats after = engine.stats();
  report_.num_cached_tokens = after.num_cached_tokens - before_.num_cached_tokens;
  report_.num_partial_hits = after.num_partial_hits - before_.num_partial_hits;
  report_.num_preemptions = after.num_preemptions - before_.num_preemptions;
  report_.num_scored_tokens = after.num_scored_tokens - before_.num_scored_tokens;
  report_.num_failed_steps = after.num_failed_steps;
  report_.outcomes.assign(outcomes_.begin() + static_cast<std::ptrdiff_t>(batch_begin_),
                          outcomes_.end());
  return std::move(report_);
}

void BatchMates::before_step(const scheduler::StepPlan& plan) {
  const std::lock_guard lock(mutex_);
  ++step_;
  if (next_ > batch_begin_) count_rows(plan);
  submit_due();
}

void BatchMates::count_rows(const scheduler::StepPlan& plan) {
  int num_batch_rows = 0;
  for (const scheduler::PlanRow& row : plan.rows) {
    const auto stream = static_cast<std::size_t>(row.sequence->key.stream);
    if (stream < batch_begin_) continue;
    ++num_batch_rows;
    report_.max_chunk = std::max(report_.max_chunk, row.num_tokens);
    outcomes_[stream].num_preempted = row.sequence->num_preempted;
  }
  report_.max_rows = std::max(report_.max_rows, static_cast<int>(plan.rows.size()));
  report_.max_batch_rows = std::max(report_.max_batch_rows, num_batch_rows);
}

void BatchMates::submit_due() {
  while (!all_submitted()) {
    const bool begins_phase = next_ > 0 && order_[next_].phase != order_[next_ - 1].phase;
    if (begins_phase ? !may_enter_next_phase() : step_ < due_step_) return;
    submit_next();
  }
}

bool BatchMates::may_enter_next_phase() const {
  const bool must_end = phases_[order_[next_].phase - 1].waits_for_end;
  return std::all_of(outcomes_.begin(), outcomes_.begin() + static_cast<std::ptrdiff_t>(next_),
                     [&](const StreamOutcome& outcome) {
                       return outcome.ended || (!must_end && !outcome.entries.empty());
                     });
}

void BatchMates::submit_next() {
  constexpr std::size_t kNumConnections = 3;
  Arrival& arrival = order_[next_];
  if (next_ == batch_begin_) before_ = engine_->stats();
  arrival.request.key = {1 + next_ % kNumConnections, static_cast<StreamId>(next_)};
  arrival.request.sink = shared_from_this();
  const Result<void> taken = engine_->instance().submit(std::move(arrival.request));
  LMTP_CHECK(taken.ok(), taken.ok() ? "" : taken.error().message);
  ++num_live_;
  ++next_;
  if (!all_submitted()) due_step_ = step_ + order_[next_].gap;
}

void BatchMates::deliver(std::vector<StreamEvent> events) {
  const std::lock_guard lock(mutex_);
  for (const StreamEvent& event : events) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      take(*token);
    } else if (const auto* error = std::get_if<StreamError>(&event)) {
      outcomes_[static_cast<std::size_t>(error->stream_id)].error = error->error.message;
      end(error->stream_id);
    }
  }
  if (num_live_ == 0) idle_.notify_all();
}

void BatchMates::take(const TokenEvent& entry) {
  outcomes_[static_cast<std::size_t>(entry.stream_id)].entries.push_back(entry);
  if (entry.finish_reason != FinishReason::kNone) end(entry.stream_id);
}

void BatchMates::end(StreamId id) {
  StreamOutcome& outcome = outcomes_[static_cast<std::size_t>(id)];
  LMTP_CHECK(!outcome.ended, id);
  outcome.ended = true;
  --num_live_;
}

}  // namespace lmtp::numerics

#include "batch_mates.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "lmtp/base/check.h"

namespace lmtp::numerics {
namespace {

constexpr std::size_t kNumForks = 4;
// A stream that has so many tokens is edited.
constexpr std::size_t kTokensBeforeEdit = 12;
constexpr int kDroppedMax = 20;

}  // namespace

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
  using ModelAgent::collect;
  Result<void> collect(scheduler::StepResult& result) override { return agent_->collect(result); }
  bool is_lost() const override { return agent_->is_lost(); }

 private:
  std::unique_ptr<scheduler::ModelAgent> agent_;
  BatchMates& batch_mates_;
};

BatchMates::BatchMates(std::vector<Phase> phases, Edits edits)
    : phases_(std::move(phases)), edits_(edits) {
  LMTP_CHECK(!phases_.empty() && phases_.back().of_batch);
  for (std::size_t phase = 0; phase < phases_.size(); ++phase) {
    const Phase& from = phases_[phase];
    LMTP_CHECK(!from.streams.empty() && from.gaps.size() == from.streams.size(), phase,
               from.streams.size(), from.gaps.size());
    if (!from.of_batch) batch_begin_ += from.streams.size();
    LMTP_CHECK(from.of_batch || batch_begin_ == order_.size() + from.streams.size(), phase);
    for (std::size_t i = 0; i < from.streams.size(); ++i) {
      order_.push_back({from.streams[i], from.gaps[i], phase, from.streams[i].params.seed});
    }
  }
  outcomes_.resize(order_.size());
}

BatchReport BatchMates::run(const engine::ModelLimits& limits, const engine::EngineOptions& options,
                            std::unique_ptr<scheduler::ModelAgent> agent) {
  runs_ahead_ = options.debug.run_ahead && agent->runs_ahead();
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
  report_.num_accepted_drafts = after.num_accepted_drafts - before_.num_accepted_drafts;
  report_.num_refused_drafts = after.num_refused_drafts - before_.num_refused_drafts;
  report_.num_failed_steps = after.num_failed_steps;
  report_.outcomes.assign(outcomes_.begin() + static_cast<std::ptrdiff_t>(batch_begin_),
                          outcomes_.end());
  return std::move(report_);
}

void BatchMates::before_step(const scheduler::StepPlan& plan) {
  const std::lock_guard lock(mutex_);
  ++step_;
  note_keys(plan);
  if (next_ > batch_begin_) count_rows(plan);
  if (edits_ != Edits::kNone) edit_due(plan);
  submit_due();
}

void BatchMates::note_keys(const scheduler::StepPlan& plan) {
  for (const scheduler::SlotStart& start : plan.changes.started) {
    const auto slot = static_cast<std::size_t>(start.slot);
    if (slot >= stream_of_slot_.size()) stream_of_slot_.resize(slot + 1);
    const auto stream = static_cast<std::size_t>(start.key.stream);
    stream_of_slot_[slot] = stream;
    if (stream < outcomes_.size()) ++outcomes_[stream].num_started;
  }
}

void BatchMates::count_rows(const scheduler::StepPlan& plan) {
  int num_batch_rows = 0;
  for (const scheduler::PlanRow& row : plan.rows) {
    const std::size_t stream = stream_of_slot_[static_cast<std::size_t>(row.slot)];
    if (stream < batch_begin_ || stream >= order_.size()) continue;
    ++num_batch_rows;
    report_.max_chunk = std::max(report_.max_chunk, row.num_tokens - row.num_drafts);
  }
  report_.max_rows = std::max(report_.max_rows, static_cast<int>(plan.rows.size()));
  report_.max_batch_rows = std::max(report_.max_batch_rows, num_batch_rows);
}

void BatchMates::edit_due(const scheduler::StepPlan& plan) {
  for (const scheduler::PlanRow& row : plan.rows) {
    const std::size_t stream = stream_of_slot_[static_cast<std::size_t>(row.slot)];
    if (stream < batch_begin_ || stream >= order_.size()) continue;
    StreamOutcome& outcome = outcomes_[stream];
    if (order_[stream].request.kind != RequestKind::kGenerate || outcome.is_edited ||
        outcome.ended || outcome.entries.size() < kTokensBeforeEdit) {
      continue;
    }
    outcome.is_edited = true;
    if (edits_ == Edits::kAll && (stream - batch_begin_) % 2 == 1) {
      fork(stream);
    } else {
      backtrack(stream, row);
    }
  }
}

// row: of the step at hand, which gives it tokens before the edit is made.
void BatchMates::backtrack(std::size_t stream, const scheduler::PlanRow& row) {
  const std::vector<TokenEvent>& known = outcomes_[stream].entries;
  const auto index = static_cast<int>(stream - batch_begin_);
  const auto num_known = static_cast<int>(known.size());
  const int num_dropped = std::min(1 + 7 * index % kDroppedMax, num_known);
  const int num_kept = num_known + row.num_logits - num_dropped;
  Backtrack command{.key = order_[stream].request.key,
                    .num_dropped = num_dropped,
                    .appended = {},
                    .sink = shared_from_this()};
  // Where it runs ahead, one more may be coming; of drafts, fewer.
  const bool is_certain = !runs_ahead_ && row.num_drafts == 0;
  const int num_appended = !is_certain ? 0 : std::min(num_known - num_kept, 4 * (index % 3));
  for (int i = num_kept; i < num_kept + num_appended; ++i) {
    command.appended.push_back(known[static_cast<std::size_t>(i)].token);
  }
  const Result<void> taken = engine_->instance().backtrack(std::move(command));
  LMTP_CHECK(taken.ok(), taken.ok() ? "" : taken.error().message);
}

void BatchMates::fork(std::size_t stream) {
  ForkOf of{order_[stream].request.key, {}};
  const auto seed = std::ranges::find(kSamplingTable, "seed", &SamplingParam::name);
  of.changes.given.set(static_cast<std::size_t>(seed - kSamplingTable.begin()));
  of.changes.values.seed = order_[stream].seed;
  const auto shared = std::make_shared<const ForkOf>(std::move(of));
  std::vector<Request> forks(kNumForks);
  for (std::size_t i = 0; i < kNumForks; ++i) {
    const auto id = static_cast<StreamId>(order_.size() + stream * kNumForks + i);
    forks[i].key = {shared->key.connection, id};
    forks[i].sink = shared_from_this();
    forks[i].fork = shared;
  }
  outcomes_[stream].forks.resize(kNumForks);
  num_live_ += static_cast<int>(kNumForks);
  const Result<void> taken = engine_->instance().submit_forks(forks);
  LMTP_CHECK(taken.ok(), taken.ok() ? "" : taken.error().message);
}

StreamOutcome& BatchMates::outcome_of(StreamId id) {
  const auto at = static_cast<std::size_t>(id);
  if (at < order_.size()) return outcomes_[at];
  const std::size_t fork = at - order_.size();
  return outcomes_[fork / kNumForks].forks[fork % kNumForks];
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

void BatchMates::deliver(std::span<StreamEvent> events) {
  const std::lock_guard lock(mutex_);
  for (const StreamEvent& event : events) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      take(*token);
    } else if (const auto* error = std::get_if<StreamError>(&event)) {
      outcome_of(error->stream_id).error = error->error.message;
      end(error->stream_id);
    } else if (const auto* refused = std::get_if<EditRefused>(&event)) {
      outcome_of(refused->stream_id).error = refused->error.message;
    } else if (const auto* begun = std::get_if<ForkBegun>(&event)) {
      const std::vector<TokenEvent>& shared = outcome_of(begun->fork_of).entries;
      outcome_of(begun->stream_id)
          .entries.assign(shared.begin(), shared.begin() + begun->num_shared);
    }
  }
  if (num_live_ == 0) idle_.notify_all();
}

void BatchMates::take(const TokenEvent& entry) {
  std::vector<TokenEvent>& entries = outcome_of(entry.stream_id).entries;
  entries.resize(entries.size() - static_cast<std::size_t>(entry.num_backtracked));
  entries.push_back(entry);
  if (entry.finish_reason != FinishReason::kNone) end(entry.stream_id);
}

void BatchMates::end(StreamId id) {
  StreamOutcome& outcome = outcome_of(id);
  LMTP_CHECK(!outcome.ended, id);
  outcome.ended = true;
  --num_live_;
}

}  // namespace lmtp::numerics

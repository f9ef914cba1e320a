#include "steps_in_flight.h"

#include <utility>

#include "lmtp/base/guarded.h"

namespace lmtp::engine {

void StepsInFlight::start(scheduler::ModelAgent& agent, const scheduler::StepPlan& plan,
                          const scheduler::Scheduler& scheduler) {
  StartedStep& step = started_.emplace_back();
  step.plan = &plan;
  step.num_tokens = plan.num_tokens;
  step.num_rows = static_cast<int>(plan.rows.size());
  step.since = std::chrono::steady_clock::now();
  step.is_ahead = started_.size() > 1;
  const Result<void> begun = guarded([&]() -> Result<void> {
    if (!step.is_ahead) begin_masks(scheduler);
    // One that does not run ahead would compute now, before the last step is delivered.
    if (!agent.runs_ahead()) return {};
    if (MaskPool::is_wanted(plan, scheduler)) return agent.forward(plan);
    step.is_chosen = true;
    return agent.start(plan);
  });
  step.error.reset();
  if (!begun) step.error = begun.error();
}

void StepsInFlight::begin_masks(const scheduler::Scheduler& scheduler) {
  if (!started_.empty()) masks_.begin(*started_.front().plan, scheduler);
}

void StepsInFlight::choose(scheduler::ModelAgent& agent) {
  StartedStep& step = started_.front();
  step.is_chosen = true;
  if (step.error) return;
  const Result<void> done = guarded([&] { return agent.choose(masks_.wait_for(mask_wait_ms_)); });
  if (!done) step.error = done.error();
}

StepsInFlight::Finished StepsInFlight::finish(scheduler::ModelAgent& agent) {
  StartedStep step = std::move(started_.front());
  started_.pop_front();
  if (step.error) {
    Error error = *step.error;
    return {std::move(step), std::move(error)};
  }
  Result<void> done = guarded([&] { return collect(agent, step); });
  return {std::move(step), std::move(done)};
}

Result<void> StepsInFlight::collect(scheduler::ModelAgent& agent, const StartedStep& step) {
  if (!agent.runs_ahead()) {
    Result<void> done = agent.forward(*step.plan);
    if (done) done = agent.choose(masks_.wait_for(mask_wait_ms_));
    if (!done) return done;
  }
  return agent.collect(result_);
}

}  // namespace lmtp::engine

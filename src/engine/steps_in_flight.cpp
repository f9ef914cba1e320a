#include "steps_in_flight.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/runtime.h"

namespace lmtp::engine {

void StepsInFlight::start(scheduler::ModelAgent& agent, const scheduler::StepPlan& plan,
                          const scheduler::Scheduler& scheduler) {
  LMTP_CHECK(num_steps_ < kStepsMax, num_steps_);
  StartedStep& step = steps_[(oldest_ + num_steps_++) % kStepsMax];
  step = {};
  step.plan = &plan;
  step.num_tokens = plan.num_tokens;
  step.num_rows = static_cast<int>(plan.rows.size());
  step.num_decodes =
      static_cast<int>(std::ranges::count_if(plan.rows, [](const scheduler::PlanRow& row) {
        return row.num_tokens == 1 + row.num_drafts;
      }));
  step.num_drafts = static_cast<int>(plan.drafts.size());
  step.num_moves = static_cast<int>(
      std::ranges::count(plan.copies, kBlockSize, &scheduler::BlockCopy::num_tokens));
  step.since = runtime::Clock::now();
  step.is_ahead = num_steps_ > 1;
  // Moved, as where it is kept: a copy of an error needs memory.
  step.begun = guarded([&]() -> Result<void> {
    if (!step.is_ahead) begin_masks(scheduler);
    // One that does not run ahead would compute now, before the last step is delivered.
    if (!agent.runs_ahead()) return {};
    step.is_chosen = !plan.waits_for_masks;
    Result<void> done = forward(agent, plan);
    return done && step.is_chosen ? choose(agent, {}) : std::move(done);
  });
}

void StepsInFlight::begin_masks(const scheduler::Scheduler& scheduler) {
  if (!empty()) masks_.begin(*oldest().plan, scheduler);
}

void StepsInFlight::choose(scheduler::ModelAgent& agent) {
  StartedStep& step = steps_[oldest_];
  step.is_chosen = true;
  if (step.begun) step.begun = guarded([&] { return choose(agent, wait_for_masks()); });
}

StepsInFlight::Finished StepsInFlight::finish(scheduler::ModelAgent& agent) {
  LMTP_CHECK(!empty());
  StartedStep step = std::move(steps_[oldest_]);
  oldest_ = (oldest_ + 1) % kStepsMax;
  --num_steps_;
  if (!step.begun) {
    Result<void> done = std::move(step.begun);  // which still says that it was not
    return {std::move(step), std::move(done)};
  }
  Result<void> done = guarded([&] { return collect(agent, step); });
  return {std::move(step), std::move(done)};
}

Result<void> StepsInFlight::collect(scheduler::ModelAgent& agent, const StartedStep& step) {
  if (!agent.runs_ahead()) {
    Result<void> done = forward(agent, *step.plan);
    if (done) done = choose(agent, wait_for_masks());
    if (!done) return done;
  }
  const EngineTrace::Slice slice(trace_, "collect");
  Result<void> done = agent.collect(result_);
  if (!done) return done;
  done = guarded([&]() -> Result<void> {
    masks_.add_forced(result_);
    return {};
  });
  // The agent knows of no failure, so what was started ahead is collected, too.
  while (!done && !empty()) {
    if (!oldest().is_chosen || !finish(agent).done) drop_all();
  }
  return done;
}

Result<void> StepsInFlight::forward(scheduler::ModelAgent& agent, const scheduler::StepPlan& plan) {
  const EngineTrace::Slice slice(trace_, "forward");
  return agent.forward(plan);
}

Result<void> StepsInFlight::choose(scheduler::ModelAgent& agent,
                                   std::span<const scheduler::RowMask> masks) {
  const EngineTrace::Slice slice(trace_, "choose");
  return agent.choose(masks);
}

std::span<const scheduler::RowMask> StepsInFlight::wait_for_masks() {
  EngineTrace::Slice slice(trace_, "masks");
  const std::span<const scheduler::RowMask> masks = masks_.wait_for(mask_wait_ms_);
  if (masks.empty()) slice.drop();
  return masks;
}

}  // namespace lmtp::engine

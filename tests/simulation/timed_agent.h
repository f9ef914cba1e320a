// TimedAgent: a FakeAgent whose steps take virtual time.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <span>
#include <utility>

#include "fake_agent.h"
#include "simulator.h"

namespace lmtp::simulation {

// Owner: an engine, on its thread.
class TimedAgent final : public testing::FakeAgent {
 public:
  // Its own memory does not run out. after_step, at_end: on the engine's thread; at_end perhaps on
  // that of who ends the engine.
  TimedAgent(testing::FakeAgentOptions options, Simulator& simulator, std::uint64_t seed,
             std::function<void()> after_step, std::function<void()> at_end)
      : FakeAgent(std::move(options)),
        simulator_(simulator),
        random_(seed),
        after_step_(std::move(after_step)),
        at_end_(std::move(at_end)) {}
  // Gives back what it has on its device.
  ~TimedAgent() override {
    at_end_();
    const EnoughMemory enough;
    simulator_.pass(std::chrono::microseconds(random_.below(100'000)));
  }
  TimedAgent(const TimedAgent&) = delete;
  TimedAgent& operator=(const TimedAgent&) = delete;

  Result<void> forward(const scheduler::StepPlan& plan) override {
    const EnoughMemory enough;
    int num_tokens = 0;
    for (const scheduler::PlanRow& row : plan.rows) num_tokens += row.num_tokens;
    const Result<void> done = FakeAgent::forward(plan);
    if (!done) {
      ends_.clear();
      return done;
    }
    const int us = 1000 + 20 * num_tokens + random_.below(500);
    const Clock::time_point begin =
        ends_.empty() ? simulator_.now() : std::max(simulator_.now(), ends_.back());
    ends_.push_back(begin + std::chrono::microseconds(random_.one_in(200) ? 50 * us : us));
    if (ends_.size() > 2) ends_.pop_front();  // of a step that was given up
    return done;
  }
  Result<void> choose(std::span<const scheduler::RowMask> masks) override {
    const EnoughMemory enough;
    return FakeAgent::choose(masks);
  }
  using ModelAgent::collect;
  Result<void> collect(scheduler::StepResult& result) override {
    Result<void> done = wait_and_collect(result);
    after_step_();
    return done;
  }

 private:
  Result<void> wait_and_collect(scheduler::StepResult& result) {
    const EnoughMemory enough;
    if (!ends_.empty()) {
      const Clock::time_point end = ends_.front();
      ends_.pop_front();
      if (end > simulator_.now()) simulator_.pass(end - simulator_.now());
    }
    Result<void> done = FakeAgent::collect(result);
    if (!done) ends_.clear();
    return done;
  }

  Simulator& simulator_;
  Random random_;
  const std::function<void()> after_step_;
  const std::function<void()> at_end_;
  std::deque<Clock::time_point> ends_;  // of the steps under way
};

}  // namespace lmtp::simulation

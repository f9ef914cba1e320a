// A model agent around another one, which tells when the engine's thread is inside it: what counts
// or times the engine leaves out what its agent does.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "lmtp/scheduler/model_agent.h"

namespace lmtp::testing {

// What hears of an agent's calls, on the engine's thread.
class AgentWatcher {
 public:
  virtual ~AgentWatcher() = default;
  virtual void enter() = 0;
  virtual void leave() = 0;
  // After enter(), before leave(): a step with so many rows is over.
  virtual void collected(int num_rows) = 0;
};

class WatchedAgent : public scheduler::ModelAgent {
 public:
  // `watcher` outlives the agent.
  WatchedAgent(std::unique_ptr<scheduler::ModelAgent> inner, AgentWatcher& watcher)
      : inner_(std::move(inner)), watcher_(watcher) {}

  scheduler::AgentInfo info() const override { return inner_->info(); }
  Result<void> forward(const scheduler::StepPlan& plan) override {
    const Inside inside(watcher_);
    return inner_->forward(plan);
  }
  Result<void> choose(std::span<const scheduler::RowMask> masks) override {
    const Inside inside(watcher_);
    return inner_->choose(masks);
  }
  using ModelAgent::collect;
  Result<void> collect(scheduler::StepResult& result) override {
    const Inside inside(watcher_);
    Result<void> done = inner_->collect(result);
    if (done) watcher_.collected(static_cast<int>(result.rows.size()));
    return done;
  }
  bool runs_ahead() const override { return inner_->runs_ahead(); }

 private:
  struct Inside {
    explicit Inside(AgentWatcher& watcher_in) : watcher(watcher_in) { watcher.enter(); }
    ~Inside() { watcher.leave(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    AgentWatcher& watcher;
  };

  const std::unique_ptr<scheduler::ModelAgent> inner_;
  AgentWatcher& watcher_;
};

}  // namespace lmtp::testing

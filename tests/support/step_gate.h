// StepGate: a test decides which steps of an engine begin, so that what it does while a stream runs
// does not depend on how fast either of them is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

namespace lmtp::testing {

// Where steps wait, however many agents have it. Any thread.
class StepLock {
 public:
  // Called by an agent at the beginning of each step.
  void pass() {
    std::unique_lock lock(mutex_);
    if (num_let_ == kAll) return;
    ++num_held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return num_let_ > 0; });
    --num_held_;
    if (num_let_ != kAll) --num_let_;
  }
  void set_let(int num_steps) {
    {
      const std::lock_guard lock(mutex_);
      num_let_ = num_steps;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool wait_until_held() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(2),
                             [this] { return num_let_ == 0 && num_held_ > 0; });
  }

  static constexpr int kAll = std::numeric_limits<int>::max();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_let_ = kAll;  // steps that may still begin
  int num_held_ = 0;
};

// Holds all steps from its construction on. Its destructor lets them go on, also where the test
// fails: declare it after the engine, whose end waits for the step under way. Any thread.
//
//   Engine engine(make_fake_agent(options), ...);
//   StepGate gate(options.steps);
class StepGate {
 public:
  explicit StepGate(std::shared_ptr<StepLock> lock) : lock_(std::move(lock)) { lock_->set_let(0); }
  ~StepGate() { open(); }
  StepGate(const StepGate&) = delete;
  StepGate& operator=(const StepGate&) = delete;

  // So many steps may begin from now on, whatever was let before. Commands are taken between
  // steps, and what a step gives is delivered during the next one (of an agent that runs ahead, the
  // one after), so what n steps give takes n + 2.
  void let(int num_steps) { lock_->set_let(num_steps); }
  // Until all that were let have begun and another is held: the engine's thread is inside it.
  // False: none came.
  [[nodiscard]] bool wait_until_inside() { return lock_->wait_until_held(); }
  void open() { lock_->set_let(StepLock::kAll); }

 private:
  const std::shared_ptr<StepLock> lock_;
};

}  // namespace lmtp::testing

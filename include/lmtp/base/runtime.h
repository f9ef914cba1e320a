// The clock, threads, waits and random bits of the server. Tests put a simulation in their place
// (tests/simulation): one thread of the system, whose time passes where nothing else is to be done,
// and a seed that decides everything. Otherwise each of them is the standard library's, after one
// look at a pointer that is null: no virtual call, and a branch that is always predicted.
//
// What is written with these is simulated; tools/dev/raw_calls.py says which folders must be.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

namespace lmtp::runtime {

// What a simulation does. Its threads are fibers, which take turns: each runs until it waits.
// REQUIRES of them: a thread that waits holds no mutex that another one wants.
class Simulation {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Simulation() = default;
  virtual Time now() noexcept = 0;
  virtual std::uint64_t start(std::function<void()> run) = 0;
  virtual void join(std::uint64_t thread) = 0;
  virtual std::uint64_t current() noexcept = 0;  // the thread that runs
  // Until wake() at the same place, or until that time.
  virtual void wait(const void* place, Time until) = 0;
  virtual void wake(const void* place, bool all) noexcept = 0;
  virtual std::uint32_t random_bits() = 0;
};

// The one mutable global: null, but while a simulation runs. Set before the first thread of what is
// simulated starts, and reset after its last one was joined.
inline constinit Simulation* simulation = nullptr;

inline bool is_simulated() { return __builtin_expect(simulation != nullptr, 0) != 0; }

struct Clock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;  // NOLINT(readability-identifier-naming): the library's

  static time_point now() noexcept {
    if (!is_simulated()) return std::chrono::steady_clock::now();
    return simulation->now();
  }
};

// A condition variable.
class Condition {
 public:
  // Until it is notified, or for no reason.
  void wait(std::unique_lock<std::mutex>& lock) {
    if (!is_simulated()) return changed_.wait(lock);
    simulate(lock, Clock::time_point::max());
  }
  // As well, or until then.
  void wait_until(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
    if (!is_simulated()) return (void)changed_.wait_until(lock, until);
    simulate(lock, until);
  }
  template <typename Holds>
  void wait(std::unique_lock<std::mutex>& lock, Holds holds) {
    if (!is_simulated()) return changed_.wait(lock, std::move(holds));
    (void)simulate(lock, Clock::time_point::max(), holds);
  }
  template <typename Holds>
  bool wait_until(std::unique_lock<std::mutex>& lock, Clock::time_point until, Holds holds) {
    if (!is_simulated()) return changed_.wait_until(lock, until, std::move(holds));
    return simulate(lock, until, holds);
  }
  template <typename Holds>
  bool wait_for(std::unique_lock<std::mutex>& lock, Clock::duration time, Holds holds) {
    return wait_until(lock, Clock::now() + time, std::move(holds));
  }
  void notify_one() noexcept {
    if (!is_simulated()) return changed_.notify_one();
    simulation->wake(this, false);
  }
  void notify_all() noexcept {
    if (!is_simulated()) return changed_.notify_all();
    simulation->wake(this, true);
  }

 private:
  template <typename Holds>
  bool simulate(std::unique_lock<std::mutex>& lock, Clock::time_point until, Holds& holds) {
    while (!holds()) {
      if (Clock::now() >= until) return false;
      simulate(lock, until);
    }
    return true;
  }
  void simulate(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
    lock.unlock();
    simulation->wait(this, until);
    lock.lock();
  }

  std::condition_variable changed_;
};

// As std::thread.
class Thread {
 public:
  Thread() = default;
  template <typename Run>
  requires std::is_invocable_v<Run&>
  explicit Thread(Run run) {
    if (!is_simulated()) {
      thread_ = std::thread(std::move(run));
    } else {
      // Shared, since it need not be copyable.
      simulated_ = simulation->start([run = std::make_shared<Run>(std::move(run))] { (*run)(); });
    }
  }
  Thread(Thread&& other) noexcept
      : thread_(std::move(other.thread_)), simulated_(std::exchange(other.simulated_, 0)) {}
  Thread& operator=(Thread&& other) noexcept {
    if (joinable()) std::terminate();
    thread_ = std::move(other.thread_);
    simulated_ = std::exchange(other.simulated_, 0);
    return *this;
  }
  ~Thread() {
    if (simulated_ != 0) std::terminate();
  }

  bool joinable() const { return simulated_ != 0 || thread_.joinable(); }
  bool is_current() const {
    if (simulated_ == 0) return thread_.get_id() == std::this_thread::get_id();
    return simulation->current() == simulated_;
  }
  void detach() {
    if (simulated_ == 0) return thread_.detach();
    simulated_ = 0;
  }
  void join() {
    if (simulated_ == 0) return thread_.join();
    simulation->join(simulated_);
    simulated_ = 0;
  }

 private:
  std::thread thread_;
  std::uint64_t simulated_ = 0;
};

// Joins a thread, where it runs, as the scope ends: also by an exception, which would end the
// process in the destructor of a Thread that was not joined.
class ScopedJoin {
 public:
  explicit ScopedJoin(Thread& thread) : thread_(thread) {}
  ~ScopedJoin() {
    if (thread_.joinable()) thread_.join();
  }
  ScopedJoin(const ScopedJoin&) = delete;
  ScopedJoin& operator=(const ScopedJoin&) = delete;

 private:
  Thread& thread_;
};

inline void sleep_for(Clock::duration time) {
  if (!is_simulated()) return std::this_thread::sleep_for(time);
  simulation->wait(&time, Clock::now() + time);
}

// As std::random_device.
class RandomDevice {
 public:
  std::uint32_t operator()() {
    if (!is_simulated()) return device_();
    return simulation->random_bits();
  }

 private:
  std::random_device device_;
};

}  // namespace lmtp::runtime

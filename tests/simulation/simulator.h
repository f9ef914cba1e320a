// Simulator: virtual time and threads that take turns, on one thread of the system. A seed decides
// who is next where several can go on.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "lmtp/base/runtime.h"

namespace lmtp::simulation {

using runtime::Clock;

// Numbers by a seed, the same with every compiler and library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  std::uint64_t bits() { return bits_(); }
  int below(int end) { return static_cast<int>(bits_() % static_cast<std::uint64_t>(end)); }
  int between(int first, int last) { return first + below(last - first + 1); }
  bool one_in(int count) { return below(count) == 0; }

 private:
  std::mt19937_64 bits_;
};

// Runs once. What is not answered by its type is fatal: it prints why and ends the process.
class Simulator final : public runtime::Simulation {
 public:
  explicit Simulator(std::uint64_t seed);
  ~Simulator() override;
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  // Runs `main` as the first thread, and what it starts; returns when all have ended. Fails where
  // nothing can go on.
  void run(std::function<void()> main);

  Clock::time_point now() noexcept override { return now_; }
  std::uint64_t start(std::function<void()> run) override;
  void join(std::uint64_t thread) override;
  std::uint64_t current() noexcept override;
  void wait(const void* place, Clock::time_point until) override;
  void wake(const void* place, bool all) noexcept override;
  std::uint32_t random_bits() override { return static_cast<std::uint32_t>(bits_.bits()); }

  // The thread that calls it waits so long.
  void pass(Clock::duration time) { wait(&time, now_ + time); }
  // Since the beginning.
  std::int64_t now_us() const;
  std::int64_t num_switches() const { return num_switches_; }
  // Threads that are woken do not go on at once any more, but late, as on a busy machine.
  void set_lateness(bool on) { is_late_ = on; }

 private:
  struct Fiber;
  struct Event {
    Clock::time_point time;
    std::uint64_t tie = 0;
    std::uint64_t number = 0;
    std::uint64_t fiber = 0;  // its id: an address may be another one's by now
    std::uint64_t wait = 0;   // of the fiber, which may be over

    bool operator>(const Event& other) const {
      if (time != other.time) return time > other.time;
      return tie != other.tie ? tie > other.tie : number > other.number;
    }
  };

  static void enter(unsigned high, unsigned low);
  void push(Fiber& fiber, Clock::time_point time);
  void resume(Fiber& fiber);
  void leave();  // back to run()
  Fiber* find(std::uint64_t id) const;

  Random ties_;
  Random bits_;
  Clock::time_point now_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::unique_ptr<Fiber>> fibers_;  // that have not ended, in the order of their start
  std::vector<void*> stacks_;                   // of those that have
  Fiber* current_ = nullptr;
  ucontext_t main_;
  std::uint64_t num_started_ = 0;
  std::uint64_t num_events_ = 0;
  std::int64_t num_switches_ = 0;
  std::int64_t num_at_once_ = 0;  // events since time last passed
  bool is_late_ = false;
};

// While it lives no allocation of this thread fails (failing_allocations.h): what the simulation
// itself does has memory.
class EnoughMemory {
 public:
  EnoughMemory();
  ~EnoughMemory();
  EnoughMemory(const EnoughMemory&) = delete;
  EnoughMemory& operator=(const EnoughMemory&) = delete;

 private:
  const int left_;
};

// Ends the process with exit code 1: what the simulation found.
[[noreturn]] void fail(const std::string& why);
// As fail(), where it is not so.
void expect(bool holds, const std::string& why);

}  // namespace lmtp::simulation

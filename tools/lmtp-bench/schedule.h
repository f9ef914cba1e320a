// Decides which program starts when; shared by the connections of a load.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "arrivals.h"
#include "load_options.h"

namespace lmtp::tools {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A gauge with its peak. Any thread.
class Gauge {
 public:
  void rise() {
    const std::int64_t now = ++now_;
    std::int64_t peak = peak_.load();
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  void fall(std::size_t by = 1) { now_ -= static_cast<std::int64_t>(by); }
  std::int64_t peak() const { return peak_; }

 private:
  std::atomic<std::int64_t> now_ = 0;
  std::atomic<std::int64_t> peak_ = 0;
};

// Hands out the programs' numbers, each once, in the order of their times. Arrivals do not depend
// on answers, so that a slow server does not reduce the load. Any thread.
class Schedule {
 public:
  struct Start {
    std::uint64_t index = 0;
    Clock::time_point due;  // in a closed loop, the time of the call
  };

  // `options` outlives it.
  Schedule(const LoadOptions& options, Clock::time_point began);

  // The next program to start, with its due time; empty if there is none left.
  std::optional<Start> next();

  bool open_loop() const { return open_loop_; }
  Clock::time_point began() const { return began_; }
  // When the load ends by time; far in the future if it ends by number.
  Clock::time_point deadline() const { return deadline_; }

  void stop() { stopped_ = true; }
  bool is_over() const { return stopped_ || Clock::now() >= deadline_; }

  // Over all connections.
  Gauge programs;
  Gauge requests;

 private:
  std::optional<double> next_arrival_s();

  const LoadOptions& options_;
  const Clock::time_point began_;
  const Clock::time_point deadline_;
  const bool open_loop_;
  std::atomic<bool> stopped_ = false;

  std::mutex mutex_;  // guards what follows
  std::optional<Arrivals> arrivals_;
  std::int64_t next_index_ = 0;
};

}  // namespace lmtp::tools

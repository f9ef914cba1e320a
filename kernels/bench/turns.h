// A kernel measured in turns with what the machine allows: virtual processors are two threads of a
// core at one moment and two cores at the next, and memory is shared with others.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "kernels/worker_pool.h"
#include "lmtp/base/check.h"
#include "multiply_add.h"
#include "read_memory.h"

namespace lmtp::bench {

struct MachineLimits {
  double read_bytes_per_s = 0;
  double flops_per_s = 0;  // of float32's multiply-adds
};

// What a call of the kernel does.
struct Work {
  std::int64_t bytes = 0;
  std::int64_t operations = 0;
};

class Turns {
 public:
  // `memory`: what is read to measure that; more than any cache holds.
  Turns(kernels::WorkerPool& pool, std::string_view instructions, const Floats& memory,
        std::int64_t num_floats)
      : pool_(pool),
        multiply_add_(multiply_adds_for(instructions)),
        memory_(memory),
        num_floats_(num_floats) {
    LMTP_CHECK(memory.data() != nullptr);
  }

  // Rounds of a slice of the kernel between readings of the limits. One whose readings before and
  // behind differ is not counted. REQUIRES: the benchmark has one iteration and manual time.
  void run(benchmark::State& state, Work work, const std::function<void()>& kernel) {
    while (state.KeepRunning()) {
      read_ = *std::ranges::max_element(kReads, {}, [&](Read read) { return read_rate(read); });
      std::vector<Round> rounds;
      MachineLimits before = read_limits();
      int num_rounds = 0;
      while (num_rounds < kRoundsMax && std::ssize(rounds) < kRounds) {
        ++num_rounds;
        const double seconds = 1.0 / rate_of(kernel);
        const MachineLimits after = read_limits();
        if (is_near(before.read_bytes_per_s, after.read_bytes_per_s) &&
            is_near(before.flops_per_s, after.flops_per_s)) {
          rounds.push_back({seconds,
                            {(before.read_bytes_per_s + after.read_bytes_per_s) / 2,
                             (before.flops_per_s + after.flops_per_s) / 2}});
        }
        before = after;
      }
      if (rounds.empty()) return state.SkipWithError("the machine is never the same for 50 ms");
      report(state, work, rounds);
      state.counters["left_out"] = static_cast<double>(num_rounds) - std::ssize(rounds);
    }
  }

 private:
  using Quarter = float __attribute__((vector_size(16)));  // of a line
  using Read = void (*)(const float*, std::int64_t);
  // Which is the fastest depends on the processor: on a Zen 5 eight places had 30 GB/s of 50.
  static constexpr Read kReads[] = {read_vectors<Quarter, 1>, read_vectors<Quarter, 2>,
                                    read_vectors<Quarter, 4>, read_vectors<Quarter, 8>};
  static constexpr std::chrono::milliseconds kSlice{50};
  static constexpr std::int64_t kRounds = 9;
  static constexpr int kRoundsMax = 27;
  static constexpr double kNear = 1.25;

  struct Round {
    double seconds;
    MachineLimits limits;
  };

  static bool is_near(double a, double b) { return std::max(a, b) <= kNear * std::min(a, b); }

  // Calls per second over a slice.
  static double rate_of(const std::function<void()>& call) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    std::int64_t count = 0;
    for (;;) {
      call();
      ++count;
      const auto elapsed = Clock::now() - start;
      if (elapsed >= kSlice) {
        return static_cast<double>(count) / std::chrono::duration<double>(elapsed).count();
      }
    }
  }

  // Bytes per second.
  double read_rate(Read read) {
    constexpr int kNumTasks = 32;
    const std::int64_t each = num_floats_ / kNumTasks;
    const double passes = rate_of([&] {
      pool_.parallel_for(kNumTasks,
                         [&](int task, int) { read(memory_.data() + task * each, each / 4); });
    });
    return passes * static_cast<double>(each * kNumTasks) * sizeof(float);
  }

  MachineLimits read_limits() {
    const int num_threads = pool_.num_threads();
    const double loops = rate_of([&] {
      pool_.parallel_for(num_threads, [&](int, int) { multiply_add_.run(kMultiplyAddSteps); });
    });
    return {read_rate(read_), loops * num_threads * multiply_add_.flops(kMultiplyAddSteps)};
  }

  template <typename Get>
  static double median(const std::vector<Round>& rounds, const Get& get) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(get(round));
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  static void report(benchmark::State& state, Work work, const std::vector<Round>& rounds) {
    const auto bytes = static_cast<double>(work.bytes);
    const auto operations = static_cast<double>(work.operations);
    const auto of_read = [&](const Round& r) {
      return bytes / r.seconds / r.limits.read_bytes_per_s;
    };
    const auto of_peak = [&](const Round& r) {
      return operations / r.seconds / r.limits.flops_per_s;
    };
    const double seconds = median(rounds, [](const Round& r) { return r.seconds; });
    state.SetIterationTime(seconds);
    state.counters["GB/s"] = bytes / seconds * 1e-9;
    state.counters["GFLOP/s"] = operations / seconds * 1e-9;
    state.counters["read"] =
        median(rounds, [](const Round& r) { return r.limits.read_bytes_per_s; }) * 1e-9;
    state.counters["peak"] =
        median(rounds, [](const Round& r) { return r.limits.flops_per_s; }) * 1e-9;
    state.counters["of_read"] = median(rounds, of_read);
    state.counters["of_peak"] = median(rounds, of_peak);
    state.counters["of_least"] =
        median(rounds, [&](const Round& r) { return std::max(of_read(r), of_peak(r)); });
  }

  static constexpr std::int64_t kMultiplyAddSteps = 500'000;

  kernels::WorkerPool& pool_;
  const MultiplyAdds multiply_add_;
  const Floats& memory_;
  const std::int64_t num_floats_;
  Read read_ = nullptr;  // the fastest of kReads
};

}  // namespace lmtp::bench

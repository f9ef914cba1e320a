// Parts of a download that run concurrently on one thread, stepped in turn.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "http_client.h"
#include "lmtp/base/result.h"

namespace lmtp::hub {

inline constexpr std::size_t kParallelMax = 4;

// Consecutive attempts without progress.
inline constexpr int kAttemptsMax = 6;
inline constexpr std::chrono::seconds kRetryAfterMax{60};

class Job {
 public:
  // kBusy: step again at once; kWaiting: step again after network activity, or soon.
  enum class State { kWaiting, kBusy, kFinished };

  Job() = default;
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Progresses as far as possible without waiting.
  virtual Result<State> step(Clock::time_point now) = 0;
  // Of its file, for progress reports.
  virtual std::int64_t bytes_done() const { return 0; }
};

// When to retry after a transient failure.
class Retry {
 public:
  // pause: as FetchOptions::retry_pause.
  explicit Retry(std::chrono::milliseconds pause) : pause_(pause) {}

  // Notes a failure. True: retry at `at()`.
  bool again(Clock::time_point now, std::optional<int> retry_after_s) {
    if (++num_failed_ >= kAttemptsMax) return false;
    std::chrono::milliseconds pause = pause_ * std::min(1 << (num_failed_ - 1), 16);
    if (retry_after_s) {
      const std::chrono::seconds asked(*retry_after_s);
      if (asked > kRetryAfterMax) return false;
      pause = std::max<std::chrono::milliseconds>(pause, asked);
    }
    at_ = now + pause;
    return true;
  }
  Clock::time_point at() const { return at_; }
  // After progress: the next failure counts as the first.
  void reset() { num_failed_ = 0; }

 private:
  std::chrono::milliseconds pause_;
  int num_failed_ = 0;
  Clock::time_point at_;
};

}  // namespace lmtp::hub

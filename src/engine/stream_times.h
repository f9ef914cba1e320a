// StreamTimes: how long streams take, from the last ones.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lmtp/base/runtime.h"

namespace lmtp::engine {

// A moving average. Owner: the Engine; its thread.
class StreamTimes {
 public:
  static constexpr int kWaitMsMin = 100;
  static constexpr int kWaitMsMax = 60'000;

  // A stream has ended so long after its arrival.
  void add(runtime::Clock::duration time) {
    constexpr double kWeight = 1.0 / 16;  // of the newest
    const double seconds = std::chrono::duration<double>(time).count();
    mean_seconds_ =
        mean_seconds_ == 0.0 ? seconds : mean_seconds_ + kWeight * (seconds - mean_seconds_);
  }

  // Until one of so many streams ends, which began at any time. REQUIRES: num_streams >= 1.
  int wait_ms(int num_streams) const {
    const double ms = std::ceil(1000.0 * mean_seconds_ / num_streams);
    return static_cast<int>(std::clamp<double>(ms, kWaitMsMin, kWaitMsMax));
  }

 private:
  double mean_seconds_ = 0.0;
};

}  // namespace lmtp::engine

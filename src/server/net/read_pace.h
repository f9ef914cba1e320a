// ReadPace: how fast the long messages of all connections are read.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "lmtp/base/runtime.h"

namespace lmtp::server {

// The part of a message beyond this is read at the pace; what clients usually send is shorter.
inline constexpr std::size_t kUnpacedBytes = std::size_t{1} << 20;

// Owner: the server's context. Any thread.
class ReadPace {
 public:
  using Clock = runtime::Clock;

  // bytes_per_second: of all connections together, > 0.
  explicit ReadPace(std::int64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // When a connection that has just read num_bytes of a long message may read on.
  Clock::time_point after(std::size_t num_bytes) {
    const std::lock_guard lock(mutex_);
    next_ = std::max(next_, Clock::now()) +
            std::chrono::nanoseconds(static_cast<std::int64_t>(num_bytes) * 1'000'000'000 /
                                     bytes_per_second_);
    return next_;
  }

 private:
  const std::int64_t bytes_per_second_;
  std::mutex mutex_;
  Clock::time_point next_;
};

}  // namespace lmtp::server

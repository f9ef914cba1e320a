// Patience: how long a peer is waited for that takes nothing.
#pragma once

#include <chrono>

#include "lmtp/base/runtime.h"

namespace lmtp::server {

// Progress: what changes with everything that the peer takes.
// Owner: the connection, on its strand.
template <typename Progress>
class Patience {
 public:
  using Clock = runtime::Clock;

  // From `now` on; limit > 0.
  Patience(Clock::duration limit, Progress progress, Clock::time_point now)
      : limit_(limit), progress_(progress), since_(now) {}

  // Whether there has been no progress for the whole of the limit.
  bool is_over(Progress progress, Clock::time_point now) {
    if (progress != progress_) since_ = now;
    progress_ = progress;
    return now - since_ >= limit_;
  }

 private:
  const Clock::duration limit_;
  Progress progress_;
  Clock::time_point since_;
};

}  // namespace lmtp::server

// Silence: when a peer from which nothing comes is asked whether it is there, and when it is gone.
#pragma once

#include "lmtp/base/runtime.h"

namespace lmtp::server {

// Owner: the connection, on its strand.
class Silence {
 public:
  using Clock = runtime::Clock;
  enum class Next { kWait, kAsk, kGone };

  // Asked after half of the limit, gone after all of it; limit > 0.
  explicit Silence(Clock::duration limit) : limit_(limit), heard_(Clock::now()) {}

  // What is to be done `now`, when the peer was last heard at `heard`.
  Next next(Clock::time_point heard, Clock::time_point now) {
    if (heard > heard_) {
      heard_ = heard;
      asked_ = false;
    }
    if (now < due()) return Next::kWait;
    if (asked_) return Next::kGone;
    asked_ = true;
    return Next::kAsk;
  }

  // When next() is to be called again.
  Clock::time_point due() const { return heard_ + (asked_ ? limit_ : limit_ / 2); }

 private:
  const Clock::duration limit_;
  Clock::time_point heard_;
  bool asked_ = false;
};

}  // namespace lmtp::server

// QueueNotices: what waiting streams that ask for notices get to know of the queue.
#pragma once

#include <chrono>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"
#include "lmtp/request/event.h"

namespace lmtp::engine {

// Owner: the Engine; its thread. Costs streams without notices a few additions a step.
class QueueNotices {
 public:
  using Clock = runtime::Clock;

  static constexpr std::chrono::milliseconds kFirstAfter{500};
  static constexpr std::chrono::milliseconds kInterval{1000};

  // A step is planned: so many have been admitted, and so many wait.
  void planned(int num_admitted, int num_waiting, Clock::time_point now);

  // A stream that wants notices begins to wait; it is admitted; or it ends.
  void begin(const StreamKey& key, Clock::time_point now);
  void admitted(const StreamKey& key, Clock::time_point now);
  void ended(const StreamKey& key) {
    if (!waiting_.empty()) waiting_.erase(key);
  }

  bool is_due(Clock::time_point now) const { return !waiting_.empty() && now >= next_due_; }
  struct Notice {
    StreamKey key;
    StreamNotice notice;
  };
  // Those that are due. order: of all that wait, in the order in which they will be admitted.
  std::vector<Notice> take(std::span<const StreamKey> order, Clock::time_point now);

 private:
  // Moving sums over the last admissions, while others waited: how many, and in what time.
  double num_admissions_ = 0.0;
  double seconds_ = 0.0;
  bool is_waited_ = false;  // something waited when planned() was called last
  Clock::time_point last_planned_;

  // Moving average: the logarithm of how much longer streams waited than the sums alone say. Later
  // requests with a longer cached prefix pass them, for one.
  double log_excess_ = 0.0;

  struct Waiting {
    Clock::time_point due;
    Clock::time_point told;         // the first time
    double seconds_expected = 0.0;  // by the sums alone, at that time; 0: not told yet
  };
  std::unordered_map<StreamKey, Waiting, StreamKeyHash> waiting_;
  Clock::time_point next_due_;  // the earliest, or earlier
};

}  // namespace lmtp::engine

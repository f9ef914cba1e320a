#include "queue_notices.h"

#include <algorithm>
#include <cmath>

namespace lmtp::engine {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kKept = 1.0 - 1.0 / 32;  // of the sums, at each admission

}  // namespace

// Who comes while nothing waits is let in at once, and says nothing about the queue.
void QueueNotices::planned(int num_admitted, int num_waiting, Clock::time_point now) {
  if (is_waited_) {
    seconds_ += Seconds(now - last_planned_).count();
    for (int i = 0; i < num_admitted; ++i) {
      num_admissions_ = num_admissions_ * kKept + 1.0;
      seconds_ *= kKept;
    }
  }
  is_waited_ = num_waiting > 0;
  last_planned_ = now;
}

void QueueNotices::begin(const StreamKey& key, Clock::time_point now) {
  const Clock::time_point first = now + kFirstAfter;
  next_due_ = due_.empty() ? first : std::min(next_due_, first);
  due_[key] = first;
}

std::vector<QueueNotices::Notice> QueueNotices::take(std::span<const StreamKey> order,
                                                     Clock::time_point now) {
  const double ms_per_admission = seconds_ * 1000.0 / std::max(num_admissions_, 1.0);
  std::vector<Notice> notices;
  int position = 0;
  for (const StreamKey& key : order) {
    ++position;
    const auto due = due_.find(key);
    if (due == due_.end() || now < due->second) continue;
    due->second = now + kInterval;
    notices.push_back({key,
                       {.stream_id = key.stream,
                        .sample = key.sample,
                        .kind = StreamNotice::Kind::kQueued,
                        .position = position,
                        .wait_ms = std::llround(position * ms_per_admission)}});
  }
  next_due_ = Clock::time_point::max();
  for (const auto& [key, due] : due_) next_due_ = std::min(next_due_, due);
  return notices;
}

}  // namespace lmtp::engine

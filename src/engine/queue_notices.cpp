#include "queue_notices.h"

#include <algorithm>
#include <cmath>

namespace lmtp::engine {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kKept = 1.0 - 1.0 / 32;  // of the sums, at each admission
constexpr double kExcessMax = 8.0;
constexpr double kExcessWeight = 1.0 / 16;  // of the newest stream

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
  next_due_ = waiting_.empty() ? first : std::min(next_due_, first);
  waiting_[key] = {.due = first, .told = {}};
}

void QueueNotices::admitted(const StreamKey& key, Clock::time_point now) {
  if (waiting_.empty()) return;
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const Waiting waited = found->second;
  waiting_.erase(found);
  if (waited.seconds_expected == 0.0) return;
  const double seconds = Seconds(now - waited.told).count();
  const double excess = std::clamp(seconds / waited.seconds_expected, 1.0 / kExcessMax, kExcessMax);
  log_excess_ += kExcessWeight * (std::log(excess) - log_excess_);
}

std::vector<QueueNotices::Notice> QueueNotices::take(std::span<const StreamKey> order,
                                                     Clock::time_point now) {
  const double seconds_per_admission = seconds_ / std::max(num_admissions_, 1.0);
  std::vector<Notice> notices;
  int position = 0;
  for (const StreamKey& key : order) {
    ++position;
    const auto found = waiting_.find(key);
    if (found == waiting_.end() || now < found->second.due) continue;
    Waiting& waiting = found->second;
    waiting.due = now + kInterval;
    const double expected = position * seconds_per_admission;
    if (waiting.seconds_expected == 0.0) {
      waiting.told = now;
      waiting.seconds_expected = expected;
    }
    notices.push_back({key,
                       {.stream_id = key.stream,
                        .sample = key.sample,
                        .kind = StreamNotice::Kind::kQueued,
                        .position = position,
                        .wait_ms = std::llround(1000.0 * expected * std::exp(log_excess_))}});
  }
  next_due_ = Clock::time_point::max();
  for (const auto& [key, waiting] : waiting_) next_due_ = std::min(next_due_, waiting.due);
  return notices;
}

}  // namespace lmtp::engine

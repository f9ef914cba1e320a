#include "schedule.h"

#include <cmath>
#include <cstddef>

namespace lmtp::tools {
namespace {

Clock::duration of_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Schedule::Schedule(const LoadOptions& options, Clock::time_point began)
    : options_(options),
      began_(began),
      deadline_(options.num_requests > 0 ? Clock::time_point::max()
                                         : began + of_seconds(options.duration_s)),
      open_loop_(!options.arrivals_s.empty() || std::isfinite(options.request_rate)) {
  if (open_loop_ && options.arrivals_s.empty()) {
    arrivals_.emplace(options.request_rate, options.burstiness, options.workload->seed);
  }
}

std::optional<Schedule::Start> Schedule::next() {
  if (is_over()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (next_index_ >= (options_.num_requests > 0 ? options_.num_requests : kRequestsMax)) {
    return std::nullopt;
  }
  Start start{static_cast<std::uint64_t>(next_index_), Clock::now()};
  if (open_loop_) {
    const auto arrival_s = next_arrival_s();
    if (!arrival_s) return std::nullopt;
    start.due = began_ + of_seconds(*arrival_s);
    if (start.due >= deadline_) return std::nullopt;
  }
  ++next_index_;
  return start;
}

std::optional<double> Schedule::next_arrival_s() {
  if (arrivals_) return arrivals_->next_s();
  const auto index = static_cast<std::size_t>(next_index_);
  if (index >= options_.arrivals_s.size()) return std::nullopt;
  return options_.arrivals_s[index];
}

}  // namespace lmtp::tools

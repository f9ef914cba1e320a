#include "encoder.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/runtime.h"

namespace lmtp::server {

void Encoder::start() {
  {
    const std::lock_guard lock(mutex_);
    running_ = true;
  }
  thread_ = runtime::Thread([this] {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !running_ || !jobs_.empty(); });
      if (!running_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      round_ = job.round;
      lock.unlock();
      job.run();
      job = {};
      lock.lock();
    }
  });
}

void Encoder::stop() {
  std::deque<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
    dropped.swap(jobs_);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool Encoder::submit(ConnectionId connection, std::function<void()> run) {
  {
    const std::lock_guard lock(mutex_);
    if (!running_ || jobs_.size() >= kEncodesMax) return false;
    std::int64_t round = round_;
    std::size_t num_of_one = 0;
    for (const Job& job : jobs_) {
      if (job.connection != connection) continue;
      round = job.round + 1;
      ++num_of_one;
    }
    if (num_of_one >= kEncodesOfOneMax) return false;
    const auto behind = std::ranges::upper_bound(jobs_, round, {}, &Job::round);
    jobs_.insert(behind, {connection, round, std::move(run)});
  }
  changed_.notify_one();
  return true;
}

}  // namespace lmtp::server

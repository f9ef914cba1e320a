// TurnWorker: a thread for jobs that take long, of which shares take turns.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/turn_queue.h"

namespace lmtp {

// Owner: whoever starts it. start() and stop() from one thread, once; submit() from any.
class TurnWorker {
 public:
  using Job = std::function<void()>;  // must not throw

  // Jobs that wait, in all and of one share.
  TurnWorker(std::size_t max_all, std::size_t max_of_one) : jobs_(max_all, max_of_one) {}
  ~TurnWorker() { stop(); }
  TurnWorker(const TurnWorker&) = delete;
  TurnWorker& operator=(const TurnWorker&) = delete;

  void start() {
    {
      const std::lock_guard lock(mutex_);
      running_ = true;
    }
    thread_ = runtime::Thread([this] { work(); });
  }

  // Waits for the job that runs. What waits is handed back, in its order.
  std::vector<Job> stop() {
    std::vector<Job> dropped;
    {
      const std::lock_guard lock(mutex_);
      running_ = false;
      while (auto job = jobs_.pop()) dropped.push_back(*std::move(job));
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    return dropped;
  }

  // False where too much waits, or it does not run: `job` is left as it was.
  bool submit(ConnectionId share, Job&& job) {
    {
      const std::lock_guard lock(mutex_);
      if (!running_ || !jobs_.push(share, std::move(job))) return false;
    }
    changed_.notify_one();
    return true;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !running_ || !jobs_.empty(); });
      if (!running_) return;
      Job job = *jobs_.pop();
      lock.unlock();
      job();
      job = nullptr;  // what it holds may end here, not under the mutex
      lock.lock();
    }
  }

  std::mutex mutex_;
  runtime::Condition changed_;
  TurnQueue<Job> jobs_;
  bool running_ = false;
  runtime::Thread thread_;
};

}  // namespace lmtp

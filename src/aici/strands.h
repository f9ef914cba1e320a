// Strands: tasks over a few threads, in order within a strand.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lmtp::aici {

// Owner: a runtime. Any thread.
class Strands {
 public:
  using Task = std::function<void()>;  // must not throw

  explicit Strands(int num_threads);
  // Runs what was posted, but nothing that was posted for later.
  ~Strands();
  Strands(const Strands&) = delete;
  Strands& operator=(const Strands&) = delete;

  // A queue whose tasks run one after the other.
  struct Strand {
    std::deque<Task> tasks;  // guarded by the mutex of its Strands
    bool is_queued = false;  // the same: it waits for a thread, or has one
  };

  void post(const std::shared_ptr<Strand>& strand, Task task);
  void post_after(const std::shared_ptr<Strand>& strand, std::chrono::milliseconds delay,
                  Task task);

 private:
  using Clock = std::chrono::steady_clock;
  struct Taken {
    std::shared_ptr<Strand> strand;
    Task task;
  };

  void work();
  void take(std::vector<Taken>& taken);
  void add(const std::shared_ptr<Strand>& strand, Task task);

  std::mutex mutex_;  // guards all below but the threads
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Strand>> queue_;
  std::multimap<Clock::time_point, Taken> later_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lmtp::aici

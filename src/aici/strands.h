// Strands: tasks over a few threads, in order within a strand; strands of different shares in turn.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/turn_queue.h"

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

  // A queue whose tasks run one after the other. `share`: whose turn they take.
  struct Strand {
    explicit Strand(ConnectionId share_in) : share(share_in) {}

    const ConnectionId share;
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
  void run(std::vector<Taken>& taken);
  void queue(std::shared_ptr<Strand> strand);
  void add(const std::shared_ptr<Strand>& strand, Task task);

  std::mutex mutex_;  // guards all below but the threads
  std::condition_variable changed_;
  // Each strand stands in it once, so that the strands are its bound.
  TurnQueue<std::shared_ptr<Strand>> queue_{SIZE_MAX, SIZE_MAX};
  std::multimap<Clock::time_point, Taken> later_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lmtp::aici

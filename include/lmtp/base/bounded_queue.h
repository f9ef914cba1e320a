// BoundedQueue<T>: many producers, one consumer; a push beyond the capacity is refused.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "lmtp/base/runtime.h"

namespace lmtp {

// Owner: the consumer's object. try_push, push_control and closed may be called by any thread; the
// rest by the one consumer. Order is kept among all pushes.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // False where the queue is full or closed; `item` is then left as it was.
  bool try_push(T&& item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || num_regular_ >= capacity_) return false;
      items_.push_back(std::move(item));
      ++num_regular_;
    }
    ready_.notify_one();
    return true;
  }

  // All of them or none.
  bool try_push_all(std::vector<T>&& items) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || num_regular_ + items.size() > capacity_) return false;
      num_regular_ += items.size();
      items_.insert(items_.end(), std::make_move_iterator(items.begin()),
                    std::make_move_iterator(items.end()));
    }
    ready_.notify_one();
    return true;
  }

  // For the few commands that must never be lost (cancel, stop, the end of a job). They do not
  // count against the capacity: the caller keeps them bounded (one cancel a live stream).
  // False only where the queue is closed.
  bool push_control(T&& item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // The same for several at once: one drain takes all of them or none.
  bool push_control_all(std::vector<T>&& items) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.insert(items_.end(), std::make_move_iterator(items.begin()),
                    std::make_move_iterator(items.end()));
    }
    ready_.notify_one();
    return true;
  }

  // Takes all there is, without waiting.
  std::vector<T> drain() {
    const std::lock_guard lock(mutex_);
    return take_all();
  }

  bool empty() {
    const std::lock_guard lock(mutex_);
    return items_.empty();
  }

  // By any thread. Once it is, it stays so.
  bool closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  // Sleeps until there is something or the queue is closed, then takes all there is.
  std::vector<T> wait_drain() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !items_.empty() || closed_; });
    return take_all();
  }

  // As wait_drain, but sleeps no longer than until then.
  std::vector<T> wait_drain_until(runtime::Clock::time_point until) {
    std::unique_lock lock(mutex_);
    ready_.wait_until(lock, until, [this] { return !items_.empty() || closed_; });
    return take_all();
  }

  // Later pushes are refused; what is queued can still be drained.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  std::size_t capacity() const { return capacity_; }

 private:
  std::vector<T> take_all() {
    std::vector<T> taken(std::make_move_iterator(items_.begin()),
                         std::make_move_iterator(items_.end()));
    items_.clear();
    num_regular_ = 0;
    return taken;
  }

  const std::size_t capacity_;
  std::mutex mutex_;
  runtime::Condition ready_;
  std::deque<T> items_;
  std::size_t num_regular_ = 0;
  bool closed_ = false;
};

}  // namespace lmtp

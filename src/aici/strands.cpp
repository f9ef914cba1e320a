#include "strands.h"

#include <algorithm>
#include <utility>

namespace lmtp::aici {

Strands::Strands(int num_threads) {
  const std::lock_guard lock(mutex_);  // they see all of threads_
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
}

Strands::~Strands() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Strands::add(const std::shared_ptr<Strand>& strand, Task task) {
  strand->tasks.push_back(std::move(task));
  if (strand->is_queued) return;
  strand->is_queued = true;
  try {
    queue(strand);
  } catch (...) {  // the next task finds this one
    strand->is_queued = false;
    throw;
  }
}

void Strands::queue(std::shared_ptr<Strand> strand) {
  const ConnectionId share = strand->share;
  (void)queue_.push(share, std::move(strand));
}

void Strands::post(const std::shared_ptr<Strand>& strand, Task task) {
  {
    const std::lock_guard lock(mutex_);
    add(strand, std::move(task));
  }
  changed_.notify_one();
}

void Strands::post_after(const std::shared_ptr<Strand>& strand, std::chrono::milliseconds delay,
                         Task task) {
  {
    const std::lock_guard lock(mutex_);
    later_.emplace(Clock::now() + delay, Taken{strand, std::move(task)});
  }
  changed_.notify_one();
}

// A task of each of a few strands, since short tasks would take less time than the mutex.
void Strands::take(std::vector<Taken>& taken) {
  constexpr std::size_t kTakenMax = 4;
  const std::size_t num_fair = (queue_.size() + threads_.size() - 1) / threads_.size();
  for (std::size_t left = std::min(kTakenMax, num_fair); left > 0; --left) {
    std::shared_ptr<Strand> strand = *queue_.pop();
    Task task = std::move(strand->tasks.front());
    strand->tasks.pop_front();
    taken.push_back({std::move(strand), std::move(task)});
  }
}

// As long as they are short: after one that is long the others wait for their turn again.
void Strands::run(std::vector<Taken>& taken) {
  constexpr std::chrono::milliseconds kShort{1};
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (i > 0 && Clock::now() - begin > kShort) return;
    taken[i].task();
    taken[i].task = nullptr;  // what it holds may end here, not under the mutex
  }
}

void Strands::work() {
  std::vector<Taken> taken;
  std::unique_lock lock(mutex_);
  while (true) {
    while (!later_.empty() && later_.begin()->first <= Clock::now()) {
      auto due = later_.extract(later_.begin());
      add(due.mapped().strand, std::move(due.mapped().task));
    }
    if (!queue_.empty()) {
      take(taken);
      lock.unlock();
      run(taken);
      lock.lock();
      for (Taken& each : taken) {
        if (each.task) {
          each.strand->tasks.push_front(std::move(each.task));
          changed_.notify_one();
        }
        each.strand->is_queued = !each.strand->tasks.empty();
        if (each.strand->is_queued) queue(std::move(each.strand));
      }
      taken.clear();
    } else if (stops_) {
      return;
    } else if (later_.empty()) {
      changed_.wait(lock);
    } else {
      const Clock::time_point next = later_.begin()->first;  // another thread may take the entry
      changed_.wait_until(lock, next);
    }
  }
}

}  // namespace lmtp::aici

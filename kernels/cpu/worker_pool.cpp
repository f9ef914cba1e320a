#include "kernels/worker_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>

#include "lmtp/base/check.h"

namespace lmtp::kernels {
namespace {

// Polls between two looks at the clock.
constexpr int kPollsPerClock = 64;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The processors that this thread may run on, if the pool has a thread for each: its workers are
// pinned to them. Else none: with processors to spare the system places the threads better, since
// it knows the other load.
std::vector<int> processors_for(int num_threads) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) != num_threads) {
    return {};
  }
  std::vector<int> processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &allowed)) processors.push_back(processor);
  }
  return processors;
}

void pin(std::thread& thread, int processor) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  // Best effort: a refusal is ignored.
  (void)pthread_setaffinity_np(thread.native_handle(), sizeof(only), &only);
}

// Spins until `done()` or until kSpinMicroseconds have passed; true in the first case.
template <typename Done>
bool spin_until(const Done& done) {
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::microseconds(WorkerPool::kSpinMicroseconds);
  do {
    for (int poll = 0; poll < kPollsPerClock; ++poll) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < limit);
  return false;
}

}  // namespace

WorkerPool::WorkerPool(int num_threads) {
  LMTP_CHECK(num_threads >= 1 && num_threads <= kMaxThreads, num_threads);
  threads_.reserve(static_cast<std::size_t>(num_threads - 1));
  const std::vector<int> processors = processors_for(num_threads);
  for (int worker = 1; worker < num_threads; ++worker) {
    threads_.emplace_back([this] { work(); });
    if (!processors.empty()) pin(threads_.back(), processors[static_cast<std::size_t>(worker)]);
  }
}

WorkerPool::~WorkerPool() {
  stopping_.store(true, std::memory_order_relaxed);
  num_jobs_.fetch_add(1, std::memory_order_release);
  num_jobs_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::parallel_for(int num_tasks, TaskRef body) {
  if (threads_.empty() || num_tasks <= 1) {
    for (int task = 0; task < num_tasks; ++task) body(task, 0);
    return;
  }
  body_ = &body;
  num_tasks_ = num_tasks;
  num_done_.store(0, std::memory_order_relaxed);
  const std::uint32_t job = num_jobs_.load(std::memory_order_relaxed) + 1;
  ticket_.store((std::uint64_t{job} << 32) | static_cast<std::uint32_t>(num_tasks),
                std::memory_order_release);
  num_jobs_.store(job, std::memory_order_release);
  num_jobs_.notify_all();
  run_tasks(0);
  const auto done = [this, num_tasks] {
    return num_done_.load(std::memory_order_acquire) == num_tasks;
  };
  while (!spin_until(done)) {
    const int num_done = num_done_.load(std::memory_order_acquire);
    if (num_done != num_tasks) num_done_.wait(num_done, std::memory_order_acquire);
  }
}

// Runs tasks of the current job until none is left; false if there was none.
bool WorkerPool::run_tasks(int worker) {
  bool any = false;
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(ticket) != 0) {
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    // The job cannot end before this task is counted as done: body_ and num_tasks_ do not change.
    const int num_tasks = num_tasks_;
    (*body_)(num_tasks - static_cast<int>(static_cast<std::uint32_t>(ticket)), worker);
    any = true;
    if (num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_tasks && worker != 0) {
      num_done_.notify_one();
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return any;
}

void WorkerPool::wait_for_job(std::uint32_t seen) {
  const auto changed = [this, seen] { return num_jobs_.load(std::memory_order_acquire) != seen; };
  if (!spin_until(changed)) num_jobs_.wait(seen, std::memory_order_acquire);
}

void WorkerPool::work() {
  const int worker = num_workers_.fetch_add(1, std::memory_order_relaxed) + 1;
  for (;;) {
    const std::uint32_t seen = num_jobs_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (!run_tasks(worker)) wait_for_job(seen);
  }
}

}  // namespace lmtp::kernels

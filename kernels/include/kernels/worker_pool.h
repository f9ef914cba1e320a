// WorkerPool: the threads on which the CPU ops of one model run.
//
// A step of a model is hundreds of short parallel regions, microseconds apart: between them a
// worker spins, for at most kSpinMicroseconds; after that it sleeps until it is woken, so an idle
// process uses no processor time. A pool with as many threads as the process may use processors
// pins its workers, one to each but the first, which is left to the caller; the caller is not
// pinned.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace lmtp::kernels {

// A reference to a callable `void(int task, int worker)`; it must outlive the call it is given to.
// Not std::function: kernels compiled for other instruction sets must not share its template code.
class TaskRef {
 public:
  template <typename Callable,
            typename = std::enable_if_t<!std::is_same_v<std::decay_t<Callable>, TaskRef>>>
  TaskRef(const Callable& callable)  // NOLINT: implicit on purpose
      : object_(&callable), call_([](const void* object, int task, int worker) {
          (*static_cast<const Callable*>(object))(task, worker);
        }) {}

  void operator()(int task, int worker) const { call_(object_, task, worker); }

 private:
  const void* object_;
  void (*call_)(const void*, int, int);
};

// Owner: the owner of the Stream. One thread calls parallel_for; the destructor joins the workers.
class WorkerPool {
 public:
  // The longest that a worker spins for the next region, or the caller for the last worker: the
  // regions of a step follow one another faster.
  static constexpr int kSpinMicroseconds = 30;
  static constexpr int kMaxThreads = 256;

  // num_threads counts the caller. REQUIRES: 1 <= num_threads <= kMaxThreads.
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs body(task, worker) once for each task in [0, num_tasks), worker in [0, num_threads());
  // returns when all are done. Which worker takes which task is not fixed: a result must not depend
  // on it. REQUIRES: not called from inside a body; `body` does not throw.
  void parallel_for(int num_tasks, TaskRef body);

 private:
  void work();
  bool run_tasks(int worker);
  void wait_for_job(std::uint32_t seen);

  std::vector<std::thread> threads_;
  const TaskRef* body_ = nullptr;
  int num_tasks_ = 0;
  // Each on a cache line of its own: they are written by different threads.
  alignas(64) std::atomic<std::uint32_t> num_jobs_{
      0};  // posted; sleeping workers wait for a change
  // Upper half: the current job's number; lower half: its tasks not yet taken. A worker that wakes
  // late takes nothing from a finished job, so no caller waits for it.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<int> num_done_{0};
  std::atomic<int> num_workers_{0};  // that have taken their number
  std::atomic<bool> stopping_{false};
};

}  // namespace lmtp::kernels

#include "rank_threads.h"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"

namespace lmtp::agent {
namespace {

Error given_up() { return {ErrorCode::kDeviceLost, "a rank of the model does not return"}; }

}  // namespace

// Of the owner and all threads, the last of which ends it. Under the mutex but for the hooks.
struct RankThreads::Shared {
  Hooks hooks;
  std::mutex mutex;
  std::condition_variable posted;    // a task, or the end
  std::condition_variable finished;  // a rank has failed, or all are done, or one has ended
  Task task;
  bool names_rank = true;
  long long num_tasks = 0;
  int num_busy = 0;
  int num_alive = 0;
  bool is_closing = false;
  bool is_given_up = false;
  std::optional<Error> error;  // of the task: the first in time

  void work(int rank);
  void fail(int rank, const Error& reason, std::unique_lock<std::mutex>& lock);
};

void RankThreads::Shared::work(int rank) {
  hooks.on_start(rank);
  std::unique_lock lock(mutex);
  for (long long seen = 0;;) {
    posted.wait(lock, [&] { return is_closing || num_tasks != seen; });
    if (num_tasks == seen) break;
    seen = num_tasks;
    {
      const Task own = task;  // also of a thread that is left behind
      lock.unlock();
      const Result<void> done = guarded([&] { return own(rank); });
      lock.lock();
      if (!done) fail(rank, done.error(), lock);
    }
    --num_busy;
    finished.notify_all();
  }
  lock.unlock();
  hooks.on_end(rank);
  lock.lock();
  --num_alive;
  finished.notify_all();
}

void RankThreads::Shared::fail(int rank, const Error& reason, std::unique_lock<std::mutex>& lock) {
  if (error) return;  // usually since another rank has failed
  error = reason;
  if (names_rank) error->message = "rank " + std::to_string(rank) + " failed: " + reason.message;
  const std::string text = error->message;
  lock.unlock();
  hooks.on_failure(text);
  lock.lock();
}

RankThreads::RankThreads(int count, std::chrono::milliseconds patience, Hooks hooks)
    : patience_(patience), shared_(std::make_shared<Shared>()) {
  LMTP_CHECK(count >= 1, count);
  shared_->hooks = std::move(hooks);
  shared_->num_alive = count;
  threads_.reserve(static_cast<std::size_t>(count));
  try {
    for (int rank = 0; rank < count; ++rank) {
      threads_.emplace_back([shared = shared_, rank] { shared->work(rank); });
    }
  } catch (...) {  // the system has no more threads
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->num_alive = static_cast<int>(threads_.size());
    }
    close();
    throw;
  }
}

RankThreads::~RankThreads() { close(); }

void RankThreads::close() {
  bool have_ended = false;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->is_closing = true;
    shared_->posted.notify_all();
    have_ended =
        shared_->finished.wait_for(lock, patience_, [&] { return shared_->num_alive == 0; });
  }
  if (!have_ended) log::error("a rank of a model does not return; its thread is left behind");
  for (std::thread& thread : threads_) {
    if (have_ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

// False: a rank was given up.
bool RankThreads::begin(Task task, bool names_rank) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->is_given_up) return false;
  shared_->task = std::move(task);
  shared_->names_rank = names_rank;
  shared_->error.reset();
  shared_->num_busy = count();
  ++shared_->num_tasks;
  shared_->posted.notify_all();
  return true;
}

Result<void> RankThreads::run_to_end(Task task) {
  if (!begin(std::move(task), false)) return given_up();
  std::unique_lock lock(shared_->mutex);
  shared_->finished.wait(lock, [&] { return shared_->num_busy == 0; });
  shared_->task = nullptr;
  return shared_->error ? Result<void>(*shared_->error) : Result<void>();
}

Result<void> RankThreads::run(Task task) {
  if (!begin(std::move(task), true)) return given_up();
  std::unique_lock lock(shared_->mutex);
  const auto are_done = [&] { return shared_->num_busy == 0; };
  shared_->finished.wait(lock, [&] { return are_done() || shared_->error.has_value(); });
  shared_->is_given_up = !shared_->finished.wait_for(lock, patience_, are_done);
  if (!shared_->is_given_up) shared_->task = nullptr;
  return shared_->error ? Result<void>(*shared_->error) : Result<void>();
}

}  // namespace lmtp::agent

// Stream: where the ops of one model run, one after another. On a CPU: a set of kernels for its
// instruction set, the worker pool, and scratch memory.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/worker_pool.h"

namespace lmtp::kernels {

struct Backend;

// Owner: the model agent. All ops on one stream are called from one thread at a time.
class Stream {
 public:
  // `backend` and `pool` must outlive the stream.
  Stream(const Backend& backend, WorkerPool& pool);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Backend& backend() const { return backend_; }
  WorkerPool& pool() const { return pool_; }

  // At least num_bytes, 64-byte aligned, contents undefined; valid until the next call. It grows to
  // the largest request of any op and stays: bounded by the largest batch.
  void* scratch(std::size_t num_bytes);

 private:
  const Backend& backend_;
  WorkerPool& pool_;
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace lmtp::kernels

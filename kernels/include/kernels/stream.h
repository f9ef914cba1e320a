// Stream: where the ops of one model run, one after another. On a CPU: a set of kernels for its
// instruction set, the worker pool, and scratch memory. On a device: its kernels, a stream of the
// device and scratch memory there; an op only puts work into it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "kernels/memory.h"
#include "kernels/worker_pool.h"

namespace lmtp::kernels {

struct Backend;
struct DeviceApi;

// Owner: the model agent. All ops on one stream are called from one thread at a time.
class Stream {
 public:
  // `backend` and `pool` must outlive the stream. `device`: which one, where the backend has
  // devices. Throws DeviceError.
  Stream(const Backend& backend, WorkerPool& pool, int device = 0);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Backend& backend() const { return backend_; }
  WorkerPool& pool() const { return pool_; }
  // Null on a CPU.
  const DeviceApi* device_api() const;
  // What the device's functions call a stream; null on a CPU.
  void* handle() const { return handle_; }

  // Before a thread's first op on this stream, and again after it used another one.
  void use() const;
  // Returns when everything put into the stream is done. Throws DeviceError for what failed in it.
  void synchronize();
  // How long synchronize has waited so far, all calls together.
  std::chrono::nanoseconds time_waited() const { return time_waited_; }

  // At least num_bytes where the ops run, aligned as Memory, contents undefined; valid until the
  // next call. It grows to the largest request of any op and stays: bounded by the largest batch.
  void* scratch(std::size_t num_bytes);
  // How often scratch memory has moved: what was captured before holds the old place.
  std::int64_t num_scratch_moves() const { return num_scratch_moves_; }

 private:
  const Backend& backend_;
  WorkerPool& pool_;
  int device_;
  void* handle_ = nullptr;
  Memory scratch_;
  std::int64_t num_scratch_moves_ = 0;
  std::chrono::nanoseconds time_waited_{0};
};

}  // namespace lmtp::kernels

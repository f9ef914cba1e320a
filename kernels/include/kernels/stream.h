// Stream: where the ops of one model run, in order. On a CPU: the kernels for its instruction set,
// the worker pool, and scratch memory. On a device: its kernels, a stream of the device and scratch
// memory there; an op only enqueues work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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
  // The stream in calls of device_api(); null on a CPU.
  void* handle() const { return handle_; }

  // Makes the stream's device the thread's: to be called before a thread's first op on this stream,
  // and again after it used another one.
  void use() const;
  // Returns when all enqueued work is done. Throws DeviceError for what failed in it.
  void synchronize();

  // Clears memory where the ops run.
  void set_zero(void* to, std::size_t num_bytes);

  // Marks: mark(i) records the end of the work enqueued so far. wait_for(i) returns when all of
  // that is done, and throws as synchronize. On a CPU that is at once. REQUIRES: 0 <= i <
  // kNumMarks; has_reached and wait_for: i has been marked.
  static constexpr int kNumMarks = 2;
  void mark(int i);
  bool has_reached(int i) const;
  void wait_for(int i) const;

  // At least num_bytes where the ops run, aligned as Memory, contents undefined; valid until the
  // next call. It only grows, to the largest request of any op: bounded by the largest batch.
  void* scratch(std::size_t num_bytes);
  // At least num_bytes for what blocks of a launch count, where the ops run: zeros before each
  // launch, which leaves zeros behind. Address and growth as of scratch().
  std::uint32_t* counters(std::size_t num_bytes);
  // Streams of one thread each on this one's host backend, one for a worker, for ops that run
  // others in their tasks. make_lanes() makes those that are missing; even_lanes() brings the
  // scratch memory of all to that of the largest, so that it does not matter to later steps which
  // worker took which task. lane(): any worker, within a region. REQUIRES: a CPU's backend.
  void make_lanes();
  Stream& lane(int worker);
  void even_lanes();
  // How often either was reallocated: graphs captured before have the old address.
  std::int64_t num_scratch_moves() const { return num_scratch_moves_; }

 private:
  struct Lane;

  void release();
  // Whether `memory` had to be replaced by so much, contents undefined.
  bool grow(Memory& memory, std::size_t num_bytes);

  const Backend& backend_;
  WorkerPool& pool_;
  int device_;
  void* handle_ = nullptr;
  Memory scratch_;
  Memory counters_;
  std::int64_t num_scratch_moves_ = 0;
  std::array<void*, kNumMarks> marks_{};  // events
  std::vector<std::unique_ptr<Lane>> lanes_;
};

struct Stream::Lane {
  explicit Lane(const Backend& backend) : stream(backend, pool) {}

  WorkerPool pool{1};
  Stream stream;
};

inline Stream& Stream::lane(int worker) { return lanes_[static_cast<std::size_t>(worker)]->stream; }

}  // namespace lmtp::kernels

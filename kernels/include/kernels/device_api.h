// DeviceApi: memory, copies, streams, events and graphs of a device. cuda/ implements it on the
// CUDA runtime, the tests' emulation in plain C++. A backend without one computes in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace lmtp::kernels {

// Failure of a device, of its driver or of an allocation on it.
class DeviceError : public std::runtime_error {
 public:
  enum class Kind {
    kFailed,       // this call alone
    kOutOfMemory,  // and nothing was allocated
    kSticky,       // the device's context is lost: every later call fails too
    kGone,         // lost for good: CUDA needs a new process
  };
  DeviceError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

struct DeviceMemory {
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
};

// Every function but release() throws DeviceError. Launches fail asynchronously: synchronize,
// is_done, wait or any later call reports it. Work in one stream runs in order. Functions without a
// stream act on the calling thread's device.
struct DeviceApi {
  // Sets the calling thread's device, at first 0.
  void (*use_device)(int device);
  DeviceMemory (*memory)();
  void* (*create_stream)();
  void (*synchronize)(void* stream);
  // An event marks a position in a stream: record() enqueues it behind all earlier work.
  void* (*create_event)();
  void (*record)(void* event, void* stream);
  bool (*is_done)(void* event);
  void (*wait)(void* event);
  // 256-byte aligned, contents undefined. Waits for all running work.
  void* (*allocate)(std::size_t num_bytes);
  // Page-locked host memory: copies from and to it are asynchronous, and kernels read and write it
  // at the same address: what was written before they were launched, and for whoever has waited
  // for them.
  void* (*allocate_pinned)(std::size_t num_bytes);
  // REQUIRES: both sides stay unchanged until the stream has executed the copy.
  void (*copy_to_device)(void* stream, void* to, const void* from, std::size_t num_bytes);
  void (*copy_to_host)(void* stream, void* to, const void* from, std::size_t num_bytes);
  void (*set_zero)(void* stream, void* to, std::size_t num_bytes);
  // Work enqueued between begin_capture and end_capture is recorded, not run; the graph replays it
  // on the same memory. REQUIRES: nothing is allocated in between.
  void (*begin_capture)(void* stream);
  void* (*end_capture)(void* stream);
  void (*launch_graph)(void* graph, void* stream);
  // Resets a lost device; all memory allocated on it is gone. Throws kGone where a stream is left
  // on it, or where it does not come back.
  void (*reset)();
  // Frees what a function above returned. Throws nothing: destructors call it.
  enum class HandleKind { kStream, kEvent, kMemory, kPinned, kGraph };
  void (*release)(HandleKind kind, void* handle);
};

}  // namespace lmtp::kernels

// DeviceApi: memory of a device, copies, and the order of what runs there. The CUDA runtime stands
// behind it in cuda/; tests put plain C++ in its place. A backend without one computes in the
// memory of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace lmtp::kernels {

// What a device, its driver or its memory refused.
class DeviceError : public std::runtime_error {
 public:
  enum class Kind {
    kFailed,       // this call alone
    kOutOfMemory,  // and nothing was allocated
    kSticky,       // the device's context is lost: every later call fails too
    kGone,         // and stays so for this process (CUDA asks for another one)
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

// Every function but the last throws DeviceError; failures of what was launched come out of
// synchronize, is_done, wait or any later call. A stream is what create_stream gave, and what is
// put into one runs in order. Functions without a stream act on the calling thread's device.
struct DeviceApi {
  // The calling thread's device from now on. A thread begins at device 0.
  void (*use_device)(int device);
  DeviceMemory (*memory)();
  void* (*create_stream)();
  void (*synchronize)(void* stream);
  // An event marks how far a stream has come: record() puts it behind what is there.
  void* (*create_event)();
  void (*record)(void* event, void* stream);
  bool (*is_done)(void* event);
  void (*wait)(void* event);
  // 256-byte aligned, contents undefined. Waits for all that runs.
  void* (*allocate)(std::size_t num_bytes);
  // Of the host, where copies from and to the device run beside the host's work.
  void* (*allocate_pinned)(std::size_t num_bytes);
  // Both sides must stay as they are until the stream has come so far.
  void (*copy_to_device)(void* stream, void* to, const void* from, std::size_t num_bytes);
  void (*copy_to_host)(void* stream, void* to, const void* from, std::size_t num_bytes);
  void (*copy_on_device)(void* stream, void* to, const void* from, std::size_t num_bytes);
  void (*set_zero)(void* stream, void* to, std::size_t num_bytes);
  // From begin_capture to end_capture what is put into the stream is noted, not run; the graph then
  // runs it as often as wanted, on the same memory. REQUIRES: nothing is allocated in between.
  void (*begin_capture)(void* stream);
  void* (*end_capture)(void* stream);
  void (*launch_graph)(void* graph, void* stream);
  // Takes a device that is lost into use again, where no stream is left there; what was allocated
  // on it is gone. Where it does not come back, or cannot: kGone.
  void (*reset)();
  // Of what the functions above gave; for destructors, so it throws nothing.
  enum class Thing { kStream, kEvent, kMemory, kPinned, kGraph };
  void (*release)(Thing thing, void* what);
};

}  // namespace lmtp::kernels

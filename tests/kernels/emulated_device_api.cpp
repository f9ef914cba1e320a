// DeviceApi of the emulated device: its memory is the host's. Work is done when the call that
// enqueues it returns, or, in lazy mode, when it is waited for.
#include "cuda/device_api.h"

#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "cuda/backend.h"
#include "cuda_emulation/emulator.h"
#include "device_under_test.h"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::int64_t kTotalBytes = std::int64_t{1} << 30;
// Four of these bytes are a NaN, so that reading unwritten memory shows.
constexpr int kNoNumber = 0xFF;

constexpr int kDevicesMax = 8;

void use_device(int device) { LMTP_CHECK(device >= 0 && device < kDevicesMax, device); }

DeviceMemory memory() { return {.free_bytes = kTotalBytes / 2, .total_bytes = kTotalBytes}; }

void* create_stream() { return std::malloc(1); }

// Of what breaks a capture on a device.
void check_no_capture() { LMTP_CHECK(!cuda_emulation::is_recording()); }

void synchronize(void*) {
  check_no_capture();
  cuda_emulation::catch_up(cuda_emulation::num_put());
}

// An event: the number of operations enqueued before it.
std::int64_t& position_of(void* event) { return *static_cast<std::int64_t*>(event); }

void* create_event() { return std::calloc(1, sizeof(std::int64_t)); }

void record(void* event, void*) {
  check_no_capture();
  position_of(event) = cuda_emulation::num_put();
}

bool is_done(void* event) { return cuda_emulation::num_done() >= position_of(event); }

void wait(void* event) {
  check_no_capture();
  cuda_emulation::catch_up(position_of(event));
}

void* allocate(std::size_t num_bytes) {
  if (static_cast<std::int64_t>(num_bytes) > kTotalBytes) {
    throw DeviceError(DeviceError::Kind::kOutOfMemory, "the emulated device is full");
  }
  synchronize(nullptr);
  const std::size_t rounded = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  std::memset(memory, kNoNumber, rounded);
  return memory;
}

// Of what this thread has put: all but launches by themselves, and those that were asked about.
thread_local std::int64_t num_others = 0;

void copy(void*, void* to, const void* from, std::size_t num_bytes) {
  if (num_bytes > 0) {
    ++num_others;
    cuda_emulation::put([=] { std::memcpy(to, from, num_bytes); });
  }
}

void set_zero(void*, void* to, std::size_t num_bytes) {
  ++num_others;
  cuda_emulation::put([=] { std::memset(to, 0, num_bytes); });
}

using Graph = std::vector<cuda_emulation::Launch>;
int graph_launches = 0;

void begin_capture(void*) { cuda_emulation::begin_recording(); }

void* end_capture(void*) { return new Graph(cuda_emulation::end_recording()); }

void launch_graph(void* graph, void*) {
  ++graph_launches;
  num_others += std::ssize(*static_cast<const Graph*>(graph));
  for (const cuda_emulation::Launch& launch : *static_cast<const Graph*>(graph)) {
    cuda_emulation::submit(launch.shape, launch.thread);
  }
}

void reset() {}

void release(DeviceApi::HandleKind kind, void* handle) {
  if (kind == DeviceApi::HandleKind::kGraph) {
    delete static_cast<Graph*>(handle);
    return;
  }
  check_no_capture();
  if (kind == DeviceApi::HandleKind::kStream) synchronize(handle);
  // A later use reads NaN.
  std::memset(handle, kNoNumber, malloc_usable_size(handle));
  std::free(handle);
}

}  // namespace

const DeviceApi& device_api() {
  static constexpr DeviceApi kApi = {.use_device = use_device,
                                     .memory = memory,
                                     .create_stream = create_stream,
                                     .synchronize = synchronize,
                                     .create_event = create_event,
                                     .record = record,
                                     .is_done = is_done,
                                     .wait = wait,
                                     .allocate = allocate,
                                     .allocate_pinned = allocate,
                                     .copy_to_device = copy,
                                     .copy_to_host = copy,
                                     .set_zero = set_zero,
                                     .begin_capture = begin_capture,
                                     .end_capture = end_capture,
                                     .launch_graph = launch_graph,
                                     .reset = reset,
                                     .release = release};
  return kApi;
}

}  // namespace lmtp::kernels::cuda

namespace lmtp::testing {

const kernels::Backend& device_under_test() { return kernels::cuda::device_backend(); }

int num_multiprocessors() { return cuda_emulation::num_multiprocessors(); }

int take_num_graph_launches() { return std::exchange(kernels::cuda::graph_launches, 0); }

void set_lazy_device(bool lazy) { cuda_emulation::set_lazy(lazy); }

void set_thread_order(unsigned seed) { cuda_emulation::set_order(seed); }

bool set_shared_bytes_max(std::size_t num_bytes) {
  cuda_emulation::set_shared_bytes_max(num_bytes);
  return true;
}

bool set_wgmma(bool there) {
  cuda_emulation::set_wgmma(there);
  constexpr std::size_t kSharedBytes90 = std::size_t{227} << 10;
  cuda_emulation::set_shared_bytes_max(there ? kSharedBytes90 : cuda_emulation::kLeastSharedBytes);
  return true;
}

bool set_num_multiprocessors(int count) {
  cuda_emulation::set_num_multiprocessors(count);
  return true;
}

bool set_cluster_max(int num_blocks) {
  cuda_emulation::set_cluster_max(num_blocks);
  return true;
}

int take_atomics_max() { return cuda_emulation::take_atomics_max(); }

std::int64_t take_bytes_loaded() { return std::exchange(cuda_emulation::bytes_loaded, 0); }

int take_num_launches() { return cuda_emulation::take_num_launches(); }

int take_num_single_launches() {
  const std::int64_t count = cuda_emulation::num_put() - kernels::cuda::num_others;
  kernels::cuda::num_others += count;
  return static_cast<int>(count);
}

bool set_backward_sums(bool backward) {
  cuda_emulation::set_backward_sums(backward);
  return true;
}

}  // namespace lmtp::testing

// DeviceApi on the CUDA runtime.
#include <cuda_runtime.h>
#include <device_primitives.cuh>

#include <atomic>
#include <string>

#include "cuda/device_api.h"
#include "kernels/device_api.h"

namespace lmtp::kernels::cuda {
namespace {

// The process' context on its device is lost, or its state is unknown (CUDA runtime API, cudaError:
// "To continue using CUDA, the process must be terminated and relaunched").
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
    case cudaErrorDeviceUninitialized:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

// Streams of the process: a device is reset only when none is left.
std::atomic<int>& num_streams() {
  static std::atomic<int> count{0};
  return count;
}

// Resets by the process.
std::atomic<int>& num_resets() {
  static std::atomic<int> count{0};
  return count;
}

constexpr const char* kStepFailed = "a step failed on the device";
// The runtime keeps the error of a launch until cudaGetLastError().
constexpr const char* kLaunchFailed = "a launch failed";

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

void use_device(int device) { check_cuda(cudaSetDevice(device), "cudaSetDevice"); }

DeviceMemory memory() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return {static_cast<std::int64_t>(free_bytes), static_cast<std::int64_t>(total_bytes)};
}

void* create_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  ++num_streams();
  return stream;
}

void synchronize(void* stream) {
  check_cuda(cudaStreamSynchronize(stream_of(stream)), kStepFailed);
  check_cuda(cudaGetLastError(), kLaunchFailed);
}

void* create_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

void record(void* event, void* stream) {
  check_cuda(cudaGetLastError(), kLaunchFailed);
  check_cuda(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
}

bool is_done(void* event) {
  const cudaError_t status = cudaEventQuery(event_of(event));
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // or it would be taken for a launch's
    return false;
  }
  check_cuda(status, kStepFailed);
  return true;
}

void wait(void* event) {
  check_cuda(cudaEventSynchronize(event_of(event)), kStepFailed);
  check_cuda(cudaGetLastError(), kLaunchFailed);
}

void* allocate(std::size_t num_bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, num_bytes), "cudaMalloc");
  return memory;
}

void* allocate_pinned(std::size_t num_bytes) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, num_bytes), "cudaMallocHost");
  return memory;
}

void copy_to_device(void* stream, void* to, const void* from, std::size_t num_bytes) {
  check_cuda(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyHostToDevice, stream_of(stream)),
             "copying to the device");
}

void copy_to_host(void* stream, void* to, const void* from, std::size_t num_bytes) {
  check_cuda(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDeviceToHost, stream_of(stream)),
             "copying from the device");
}

void set_zero(void* stream, void* to, std::size_t num_bytes) {
  check_cuda(cudaMemsetAsync(to, 0, num_bytes, stream_of(stream)), "cudaMemsetAsync");
}

void begin_capture(void* stream) {
  // Only this thread: other models may allocate meanwhile.
  check_cuda(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
}

void* end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream_of(stream), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(status, "cudaGraphInstantiate");
  return executable;
}

void launch_graph(void* graph, void* stream) {
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)),
             "cudaGraphLaunch");
}

void reset() {
  if (num_streams() > 0) {
    throw DeviceError(DeviceError::Kind::kGone,
                      "the CUDA device was lost while other models are on it; restart the server");
  }
  // Both may report the old error again; whether the device is back, cudaFree() shows.
  (void)cudaDeviceReset();
  (void)cudaGetLastError();
  ++num_resets();
  if (const cudaError_t status = cudaFree(nullptr); status != cudaSuccess) {
    throw DeviceError(DeviceError::Kind::kGone,
                      std::string("the CUDA device is lost and does not come back (") +
                          cudaGetErrorString(status) + "); restart the server");
  }
}

// Errors are ignored: the next call fails for the same cause.
void release(DeviceApi::HandleKind kind, void* handle) {
  switch (kind) {
    case DeviceApi::HandleKind::kStream:
      --num_streams();
      (void)cudaStreamDestroy(stream_of(handle));
      return;
    case DeviceApi::HandleKind::kEvent:
      (void)cudaEventDestroy(event_of(handle));
      return;
    case DeviceApi::HandleKind::kMemory:
      (void)cudaFree(handle);
      return;
    case DeviceApi::HandleKind::kPinned:
      (void)cudaFreeHost(handle);
      return;
    case DeviceApi::HandleKind::kGraph:
      (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle));
      return;
  }
}

}  // namespace

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // or the next call would report it again
  const auto kind = status == cudaErrorMemoryAllocation ? DeviceError::Kind::kOutOfMemory
                    : is_sticky(status)                 ? DeviceError::Kind::kSticky
                                                        : DeviceError::Kind::kFailed;
  throw DeviceError(kind, std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

int device_generation() { return num_resets(); }

std::size_t shared_bytes_max() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  int bytes = 0;
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  return static_cast<std::size_t>(bytes);
}

bool has_wgmma() {
  thread_local int known_device = -1;
  thread_local bool known = false;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  if (device == known_device) return known;
  int major = 0;
  int minor = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
             "cudaDeviceGetAttribute");
  known_device = device;
  known = major == 9 && minor == 0;  // sm_90a
  return known;
}

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
                                     .allocate_pinned = allocate_pinned,
                                     .copy_to_device = copy_to_device,
                                     .copy_to_host = copy_to_host,
                                     .set_zero = set_zero,
                                     .begin_capture = begin_capture,
                                     .end_capture = end_capture,
                                     .launch_graph = launch_graph,
                                     .reset = reset,
                                     .release = release};
  return kApi;
}

}  // namespace lmtp::kernels::cuda

#include "bench/probe_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <nv/target>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device_api.h"

namespace lmtp::bench {
namespace {

constexpr int kLaunches = 200;  // of a graph
constexpr int kRepetitions = 20;
constexpr int kBarriers = 1000;
constexpr int kBarrierThreads = 512;
constexpr int kHops = 20000;  // of a pointer chase
constexpr unsigned kNever = 0x9E3779B9U;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

int attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

class Buffer {
 public:
  explicit Buffer(std::size_t num_bytes) { check(cudaMalloc(&data_, num_bytes), "cudaMalloc"); }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

// Microseconds of work() in the stream, the least of a few.
template <typename Work>
double us_of(cudaStream_t stream, const Work& work) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  float least = 1e30F;
  for (int i = 0; i < 5; ++i) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    work();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "the probe");
    float ms = 0.0F;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i > 0) least = std::min(least, ms);  // the first also uploads a graph
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return least * 1e3;
}

cudaStream_t handle_of(const kernels::Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

// ---- launches ----

template <bool kDependent>
__global__ void empty_kernel() {
  if constexpr (kDependent) {
    NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;\n"
                                                  "griddepcontrol.wait;" ::
                                                      : "memory");))
  }
}

struct EmptyLaunches {
  bool dependent = false;
  bool alternate_shared = false;  // 0 and 96 KiB a block
  int carveout = -1;              // percent; -1: as it is
  int threads = 128;
};

template <bool kDependent>
void launch_empty(cudaStream_t stream, const EmptyLaunches& how, int i, int blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(how.threads));
  config.dynamicSmemBytes = how.alternate_shared && i % 2 == 1 ? 96 << 10 : 0;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = kDependent ? 1 : 0;
  check(cudaLaunchKernelEx(&config, empty_kernel<kDependent>), "launch");
}

// Microseconds of a graph of launch(), one behind another.
template <typename Launch>
double us_of_graph(const kernels::Stream& stream, int repetitions, const Launch& launch) {
  const kernels::DeviceApi& device = *stream.device_api();
  device.begin_capture(stream.handle());
  launch();
  void* graph = device.end_capture(stream.handle());
  const double us = us_of(handle_of(stream), [&] {
    for (int i = 0; i < repetitions; ++i) device.launch_graph(graph, stream.handle());
  });
  device.release(kernels::DeviceApi::HandleKind::kGraph, graph);
  return us / repetitions;
}

// Microseconds a launch.
template <bool kDependent>
double empty_us(const kernels::Stream& stream, const EmptyLaunches& how) {
  check(cudaFuncSetAttribute(empty_kernel<kDependent>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             96 << 10),
        "cudaFuncSetAttribute");
  check(cudaFuncSetAttribute(empty_kernel<kDependent>,
                             cudaFuncAttributePreferredSharedMemoryCarveout, how.carveout),
        "cudaFuncSetAttribute");
  const int blocks = attribute(cudaDevAttrMultiProcessorCount);
  const double us = us_of_graph(stream, kRepetitions, [&] {
    for (int i = 0; i < kLaunches; ++i) launch_empty<kDependent>(handle_of(stream), how, i, blocks);
  });
  return us / kLaunches;
}

double empty_us(const kernels::Stream& stream, const EmptyLaunches& how) {
  return how.dependent ? empty_us<true>(stream, how) : empty_us<false>(stream, how);
}

// Between the ends of two graphs of one launch.
double graph_us(const kernels::Stream& stream) {
  return us_of_graph(stream, kLaunches, [&] { launch_empty<false>(handle_of(stream), {}, 0, 1); });
}

// ---- a barrier of the grid ----

// A block a multiprocessor; counts up, so that nothing is ever reset.
__global__ void barrier_kernel(unsigned* arrived, int barriers) {
  for (int i = 1; i <= barriers; ++i) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(arrived, 1U);
      while (*static_cast<volatile unsigned*>(arrived) < static_cast<unsigned>(i) * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
  }
}

double barrier_us(cudaStream_t stream) {
  Buffer arrived(sizeof(unsigned));
  unsigned* at = arrived.as<unsigned>();
  int barriers = kBarriers;
  void* arguments[] = {static_cast<void*>(&at), static_cast<void*>(&barriers)};
  const auto blocks = static_cast<unsigned>(attribute(cudaDevAttrMultiProcessorCount));
  return us_of(stream,
               [&] {
                 check(cudaMemsetAsync(at, 0, sizeof(unsigned), stream), "cudaMemsetAsync");
                 check(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(barrier_kernel),
                                                   dim3(blocks), dim3(kBarrierThreads), arguments,
                                                   0, stream),
                       "cudaLaunchCooperativeKernel");
               }) /
         kBarriers;
}

// ---- memory ----

// Goes on where the last one ended, so that no line is read twice.
__global__ void chase_kernel(const std::uint64_t* next, int hops, std::uint64_t* kept) {
  std::uint64_t at = *kept;
  for (int i = 0; i < hops; ++i) {
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(at) : "l"(next + at));
  }
  *kept = at;
}

// Nanoseconds of a load that hits what is this large and was just read.
double latency_ns(cudaStream_t stream, std::size_t num_bytes) {
  // One cycle through all lines, in a random order (Sattolo 1986).
  constexpr std::size_t kLine = 16;  // elements: 128 bytes
  std::vector<std::uint32_t> order(num_bytes / 8 / kLine);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::mt19937 random(1);
  for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % i]);
  std::vector<std::uint64_t> next(order.size() * kLine);
  for (std::size_t i = 0; i < order.size(); ++i) next[i * kLine] = order[i] * kLine;
  Buffer there(num_bytes);
  Buffer kept(8);
  check(cudaMemsetAsync(kept.as<void>(), 0, 8, stream), "cudaMemsetAsync");
  check(cudaMemcpyAsync(there.as<void>(), next.data(), num_bytes, cudaMemcpyHostToDevice, stream),
        "copying to the device");
  return us_of(stream,
               [&] {
                 chase_kernel<<<1, 1, 0, stream>>>(there.as<const std::uint64_t>(), kHops,
                                                   kept.as<std::uint64_t>());
               }) *
         1e3 / kHops;
}

__global__ void read_again_kernel(const uint4* data, std::size_t count, int times, unsigned* kept) {
  unsigned sum = 0;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (int t = 0; t < times; ++t) {
    // Another block reads it each time: not out of L1.
    std::size_t i =
        (std::size_t{blockIdx.x} + static_cast<unsigned>(t) * 37U) % gridDim.x * blockDim.x +
        threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {
      uint4 loaded[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) loaded[k] = __ldcg(data + i + k * stride);
#pragma unroll
      for (int k = 0; k < 4; ++k) sum += loaded[k].x ^ loaded[k].y ^ loaded[k].z ^ loaded[k].w;
    }
  }
  if (sum == kNever) *kept = sum;
}

double l2_gb_per_s(cudaStream_t stream) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  constexpr int kTimes = 50;
  Buffer there(kBytes);
  Buffer kept(4);
  check(cudaMemsetAsync(there.as<void>(), 1, kBytes, stream), "cudaMemsetAsync");
  const int blocks = 2 * attribute(cudaDevAttrMultiProcessorCount);
  const double us = us_of(stream, [&] {
    read_again_kernel<<<blocks, 512, 0, stream>>>(there.as<const uint4>(), kBytes / 16, kTimes,
                                                  kept.as<unsigned>());
  });
  return static_cast<double>(kBytes) * kTimes / us / 1e3;
}

}  // namespace

void probe_device(const kernels::Stream& stream, const ProbeFigure& say) {
  const cudaStream_t handle = handle_of(stream);
  say("empty launch in a graph", empty_us(stream, {}), "us");
  say("of 512 threads", empty_us(stream, {.threads = 512}), "us");
  say("with 0 and 96 KiB of shared memory in turn", empty_us(stream, {.alternate_shared = true}),
      "us");
  if (attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
    say("programmatic dependent launch", empty_us(stream, {.dependent = true}), "us");
    say("of 512 threads, dependent", empty_us(stream, {.dependent = true, .threads = 512}), "us");
    say("dependent, 0 and 96 KiB in turn",
        empty_us(stream, {.dependent = true, .alternate_shared = true}), "us");
    say("dependent, 0 and 96 KiB in turn, one carve-out",
        empty_us(stream, {.dependent = true, .alternate_shared = true, .carveout = 100}), "us");
  }
  say("a graph of one launch behind another", graph_us(stream), "us");
  say("barrier of the grid", barrier_us(handle), "us");
  say("load out of L2", latency_ns(handle, std::size_t{8} << 20), "ns");
  say("load out of memory", latency_ns(handle, std::size_t{1} << 30), "ns");
  say("L2 read", l2_gb_per_s(handle), "GB/s");
  const WgmmaBits bits = compare_wgmma(stream);
  if (bits.differing >= 0) {
    say("sums of wgmma that differ from mma.sync", bits.differing, "");
    say("of sums", bits.sums, "");
  }
}

}  // namespace lmtp::bench

#include <cuda_runtime.h>

#include <stdexcept>

#include "bench/read_device.h"

namespace lmtp::bench {
namespace {

constexpr int kLoadsInFlight = 8;  // of a thread, 16 bytes each
constexpr unsigned kNever = 0x9E3779B9U;

__global__ void read_all(const uint4* data, std::size_t count, unsigned* kept) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  unsigned sum = 0;
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + (kLoadsInFlight - 1) * stride < count; i += kLoadsInFlight * stride) {
    uint4 loaded[kLoadsInFlight];
#pragma unroll
    for (int k = 0; k < kLoadsInFlight; ++k) loaded[k] = __ldcs(data + i + k * stride);
#pragma unroll
    for (int k = 0; k < kLoadsInFlight; ++k) {
      sum += loaded[k].x ^ loaded[k].y ^ loaded[k].z ^ loaded[k].w;
    }
  }
  for (; i < count; i += stride) sum += data[i].x;
  if (sum == kNever) *kept = sum;  // or the compiler leaves all of it out
}

}  // namespace

void read_on_device(const kernels::Stream& stream, const void* data, std::size_t num_bytes,
                    const ReadShape& shape) {
  int device = 0;
  int num_multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, device);
  read_all<<<num_multiprocessors * shape.blocks_each, shape.threads, 0,
             static_cast<cudaStream_t>(stream.handle())>>>(
      static_cast<const uint4*>(data), num_bytes / sizeof(uint4),
      static_cast<unsigned*>(const_cast<void*>(data)));
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("the read was not launched");
}

}  // namespace lmtp::bench

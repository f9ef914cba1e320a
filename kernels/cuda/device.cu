#include <cuda_runtime.h>

#include <string>

#include "kernels/device.h"

namespace lmtp::kernels::cuda {

Probe probe() {
  Probe result;
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) != cudaSuccess || driver_version == 0) {
    result.reason = "no NVIDIA driver was found";
    return result;
  }
  int num_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&num_devices);
  if (status != cudaSuccess || num_devices == 0) {
    result.reason = std::string("no usable CUDA device: ") + cudaGetErrorString(status);
    return result;
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess) {
    result.name = properties.name;
  }
  result.reason = "this version computes on the CPU only";
  return result;
}

}  // namespace lmtp::kernels::cuda

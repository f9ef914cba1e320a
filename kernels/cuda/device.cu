#include "kernels/device.h"

#include <cuda_runtime.h>

#include <string>

#include "cuda/backend.h"
#include "kernels/attention.h"

namespace lmtp::kernels::cuda {
namespace {

constexpr int kMajorMin = 8;  // Ampere: bfloat16 products, asynchronous copies

// "13.0" of the runtime's 13000.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Why the device of that number cannot be used; empty if it can.
std::string what_is_wrong(int device, int num_devices, Probe& probe) {
  if (device >= num_devices) {
    return "there is no device cuda:" + std::to_string(device) +
           "; the last is cuda:" + std::to_string(num_devices - 1);
  }
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, device);
      status != cudaSuccess) {
    return "cuda:" + std::to_string(device) + ": " + cudaGetErrorString(status);
  }
  probe.name = properties.name;
  probe.num_multiprocessors = properties.multiProcessorCount;
  probe.compute_capability = properties.major * 10 + properties.minor;
  if (properties.major < kMajorMin) {
    return probe.name + " has compute capability " + std::to_string(properties.major) + "." +
           std::to_string(properties.minor) + "; 8.0 is the least";
  }
  return "";
}

}  // namespace

Probe probe(int device) {
  Probe result;
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) != cudaSuccess || driver_version == 0) {
    result.reason = "no NVIDIA driver was found";
    return result;
  }
  const cudaError_t status = cudaGetDeviceCount(&result.num_devices);
  if (status == cudaErrorInsufficientDriver) {
    // Of the runtime's major release each driver will do.
    result.reason = "the NVIDIA driver is too old: it knows CUDA " + version_text(driver_version) +
                    ", and this program needs " + version_text(CUDART_VERSION / 1000 * 1000);
    if (CUDART_VERSION >= 13000) result.reason += "; tools/setup --cuda-12 helps to build for 12.0";
    return result;
  }
  if (status != cudaSuccess || result.num_devices == 0) {
    result.reason = std::string("no usable CUDA device: ") + cudaGetErrorString(status);
    return result;
  }
  result.reason = what_is_wrong(device, result.num_devices, result);
  result.available = result.reason.empty();
  return result;
}

const Backend& backend() { return device_backend(); }

}  // namespace lmtp::kernels::cuda

#include "kernels/memory.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "kernels/backend.h"
#include "kernels/device_api.h"

namespace lmtp::kernels {
namespace {

constexpr std::size_t kAlignment = 64;

std::shared_ptr<void> allocate_on_host(std::size_t num_bytes) {
  const std::size_t rounded = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    throw std::bad_alloc();
  }
  return {data, [](void* memory) { std::free(memory); }};
}

}  // namespace

Memory Memory::allocate(const Backend& backend, std::size_t num_bytes) {
  num_bytes = std::max<std::size_t>(num_bytes, 1);
  const DeviceApi* device = backend.device;
  if (device == nullptr) {
    return {allocate_on_host(num_bytes), num_bytes};
  }
  return {{device->allocate(num_bytes),
           [device](void* memory) { device->release(DeviceApi::Thing::kMemory, memory); }},
          num_bytes};
}

Memory Memory::allocate_pinned(const Backend& backend, std::size_t num_bytes) {
  num_bytes = std::max<std::size_t>(num_bytes, 1);
  const DeviceApi* device = backend.device;
  if (device == nullptr) {
    return {allocate_on_host(num_bytes), num_bytes};
  }
  return {{device->allocate_pinned(num_bytes),
           [device](void* memory) { device->release(DeviceApi::Thing::kPinned, memory); }},
          num_bytes};
}

}  // namespace lmtp::kernels

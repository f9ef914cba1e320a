#include "kernels/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "kernels/backend.h"
#include "kernels/device_api.h"
#include "kernels/populate.h"

namespace lmtp::kernels {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older C libraries do not name

// Large allocations use huge pages where there are any: with small ones a good part of a step is
// TLB misses. Best effort: a refusal is ignored.
std::shared_ptr<void> allocate_on_host(std::size_t num_bytes) {
  const bool much = num_bytes >= 4 * kHugePage;
  const std::size_t alignment = much ? kHugePage : kAlignment;
  const std::size_t rounded = (num_bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
  if (much) (void)madvise(data, rounded, MADV_HUGEPAGE);
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
           [device](void* memory) { device->release(DeviceApi::HandleKind::kMemory, memory); }},
          num_bytes};
}

Memory Memory::allocate_pinned(const Backend& backend, std::size_t num_bytes) {
  num_bytes = std::max<std::size_t>(num_bytes, 1);
  const DeviceApi* device = backend.device;
  if (device == nullptr) {
    return {allocate_on_host(num_bytes), num_bytes};
  }
  return {{device->allocate_pinned(num_bytes),
           [device](void* memory) { device->release(DeviceApi::HandleKind::kPinned, memory); }},
          num_bytes};
}

bool populate(void* data, std::size_t num_bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t before = reinterpret_cast<std::uintptr_t>(data) % page;
  return madvise(static_cast<std::byte*>(data) - before, num_bytes + before, kPopulateWrite) == 0;
}

}  // namespace lmtp::kernels

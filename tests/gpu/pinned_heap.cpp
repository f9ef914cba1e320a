#include "pinned_heap.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>

#include "kernels/backend.h"
#include "kernels/device.h"
#include "kernels/device_api.h"

namespace lmtp::testing {
namespace {

constexpr std::size_t kHeapBytes = std::size_t{1} << 30;
// In front of each piece: what it takes; as large as a piece's alignment.
constexpr std::size_t kHeaderBytes = 64;

// Pieces of a power of two of bytes; those of one size that were given back are a list. Without
// constructor and destructor at run time: objects come before main() and go after it.
class PinnedHeap {
 public:
  void begin(std::byte* memory) {
    memory_ = memory;
    end_ = memory;
  }
  bool has_begun() const { return memory_ != nullptr; }

  bool owns(const void* at) const {
    const std::less<const void*> is_before;
    return memory_ != nullptr && !is_before(at, memory_) && is_before(at, memory_ + kHeapBytes);
  }

  // Null: it is full.
  void* allocate(std::size_t num_bytes) {
    const int size = std::bit_width(num_bytes + 2 * kHeaderBytes - 1);
    const std::lock_guard lock(mutex_);
    Free*& list = free_.at(static_cast<std::size_t>(size));
    if (list != nullptr) {
      Free* piece = list;
      list = piece->next;
      return piece;
    }
    const std::size_t piece_bytes = std::size_t{1} << size;
    if (piece_bytes > static_cast<std::size_t>(memory_ + kHeapBytes - end_)) return nullptr;
    std::byte* piece = end_;
    end_ += piece_bytes;
    *reinterpret_cast<int*>(piece) = size;
    return piece + kHeaderBytes;
  }

  void release(void* at) {
    const int size = *reinterpret_cast<int*>(static_cast<std::byte*>(at) - kHeaderBytes);
    const std::lock_guard lock(mutex_);
    Free*& list = free_.at(static_cast<std::size_t>(size));
    list = new (at) Free{list};
  }

 private:
  struct Free {
    Free* next;
  };

  std::mutex mutex_;
  std::byte* memory_ = nullptr;
  std::byte* end_ = nullptr;
  std::array<Free*, 64> free_{};
};

constinit PinnedHeap heap;

}  // namespace

void use_pinned_heap() {
  const kernels::DeviceApi& device = *kernels::cuda::backend().device;
  heap.begin(static_cast<std::byte*>(device.allocate_pinned(kHeapBytes)));
}

}  // namespace lmtp::testing

void* operator new(std::size_t num_bytes) {
  using lmtp::testing::heap;
  void* memory = heap.has_begun() ? heap.allocate(num_bytes) : std::malloc(num_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept {
  using lmtp::testing::heap;
  if (heap.owns(memory)) {
    heap.release(memory);
  } else {
    std::free(memory);
  }
}

void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

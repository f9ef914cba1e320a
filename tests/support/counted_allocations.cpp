#include "counted_allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace lmtp::testing {
constinit thread_local std::int64_t num_allocations = 0;
}  // namespace lmtp::testing

namespace {

void* allocate(std::size_t num_bytes, std::size_t alignment) noexcept {
  ++lmtp::testing::num_allocations;
  if (num_bytes == 0) num_bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(num_bytes);
  return std::aligned_alloc(alignment, (num_bytes + alignment - 1) / alignment * alignment);
}

}  // namespace

// Not inlined: gcc would warn about a mismatch of malloc and free. The forms for arrays call these.
[[gnu::noinline]] void* operator new(std::size_t num_bytes) {
  if (void* const memory = allocate(num_bytes, 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t num_bytes, std::align_val_t alignment) {
  if (void* const memory = allocate(num_bytes, static_cast<std::size_t>(alignment))) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t num_bytes, const std::nothrow_t&) noexcept {
  return allocate(num_bytes, 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

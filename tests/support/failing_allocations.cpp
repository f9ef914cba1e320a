#include "failing_allocations.h"

#include <cstdlib>
#include <new>

namespace lmtp::testing {
constinit thread_local int allocations_left = 0;
}  // namespace lmtp::testing

// Not inlined: gcc would warn about a mismatch of malloc and free.
[[gnu::noinline]] void* operator new(std::size_t num_bytes) {
  int& left = lmtp::testing::allocations_left;
  const bool is_last = left == 1;
  if (left > 0) --left;
  if (is_last) throw std::bad_alloc();
  if (void* const memory = std::malloc(num_bytes == 0 ? 1 : num_bytes)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort allocates in this way, and does without if it fails.
[[gnu::noinline]] void* operator new(std::size_t num_bytes, const std::nothrow_t&) noexcept {
  return std::malloc(num_bytes == 0 ? 1 : num_bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

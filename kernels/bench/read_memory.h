// Reading memory at its full speed, to measure it.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lmtp::bench {

// Floats in huge pages where there are any, not zero: or every page would be the one of zeros.
class Floats {
 public:
  explicit Floats(std::int64_t count)
      : num_bytes_(static_cast<std::size_t>(count) * sizeof(float)),
        memory_(
            mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data() == nullptr) return;
    (void)madvise(memory_, num_bytes_, MADV_HUGEPAGE);
    std::fill_n(static_cast<float*>(memory_), count, 0.01F);
  }
  ~Floats() {
    if (data() != nullptr) munmap(memory_, num_bytes_);
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  // Null where there is no such memory.
  const float* data() const {
    return memory_ == MAP_FAILED ? nullptr : static_cast<const float*>(memory_);
  }

 private:
  std::size_t num_bytes_;
  void* memory_;
};

// Reads `count` vectors of floats as kPlaces runs side by side: which number is the fastest depends
// on the processor's prefetchers. REQUIRES: count is a multiple of 8 * kPlaces.
template <typename Vector, int kPlaces>
void read_vectors(const float* data, std::int64_t count) {
  const auto* vectors = reinterpret_cast<const Vector*>(data);
  const std::int64_t each = count / kPlaces;
  Vector sums[8] = {};
  for (std::int64_t i = 0; i < each; i += 8) {
    for (int place = 0; place < kPlaces; ++place) {
      for (int v = 0; v < 8; ++v) sums[v] += vectors[place * each + i + v];
    }
  }
  for (const Vector& sum : sums) asm volatile("" : : "m"(sum) : "memory");  // or all is left out
}

}  // namespace lmtp::bench

// The bf16 products of AMX tiles by vectors, to the same bits: for a single row tiles read memory
// too slowly.
#pragma once

#include <cstdint>

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// For its lifetime, subnormal numbers are zero on this thread, as they are to bf16 tiles.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kBoth); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  static constexpr unsigned kBoth = 0x8040;
  unsigned before_;
};

// A bf16 tile product of one row and `count` units: sums[v] += lower chain + upper chain, where
// at(u, v) points at the weights of unit u and vector v. `goes_on`: the tile has more units, all
// zero. REQUIRES: a FlushSubnormals in a caller that is not inlined with this.
template <int kVectors, class At>
[[gnu::always_inline]] inline void add_bf16_tile(const float* inputs, std::int64_t count,
                                                 bool goes_on, const At& at, F (&sums)[kVectors]) {
  F lower[kVectors];
  F upper[kVectors];
  for (int v = 0; v < kVectors; ++v) lower[v] = upper[v] = zero();
  for (std::int64_t u = 0; u < count; ++u) {
    const F input = broadcast(inputs[u]);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const F weight = load(at(u, v));
      lower[v] = multiply_add(lower_bf16(input), lower_bf16(weight), lower[v]);
      upper[v] = multiply_add(upper_bf16(input), upper_bf16(weight), upper[v]);
    }
  }
  if (goes_on) {
    // Products of the zero units turn -0 into 0.
    for (int v = 0; v < kVectors; ++v) {
      lower[v] = add(lower[v], zero());
      upper[v] = add(upper[v], zero());
    }
  }
  for (int v = 0; v < kVectors; ++v) sums[v] = add(sums[v], add(lower[v], upper[v]));
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

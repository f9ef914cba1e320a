// What AMX tiles give for bf16, by vectors: for a single row tiles read memory too slowly.
#pragma once

#include <cstdint>

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// While one lives, subnormal numbers are zero on this thread, as they are to bf16 tiles.
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

// What a bf16 tile product adds for one row and `count` units, the weights of unit u and vector v
// at at(u, v): sums[v] += lower chain + upper chain. REQUIRES: a FlushSubnormals of a caller that
// is not inlined together with this. `goes_on`: the tile has more units, which are zero.
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
    // Products of zeros make -0 into 0.
    for (int v = 0; v < kVectors; ++v) {
      lower[v] = add(lower[v], zero());
      upper[v] = add(upper[v], zero());
    }
  }
  for (int v = 0; v < kVectors; ++v) sums[v] = add(sums[v], add(lower[v], upper[v]));
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

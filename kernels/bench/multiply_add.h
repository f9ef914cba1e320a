// Multiply-adds of float32 that touch no memory, to measure the processor's peak.
#pragma once

#include <cstdint>
#include <string_view>

namespace lmtp::bench {

// Keeps the compiler from leaving out what made `value`.
template <typename Vector>
[[gnu::always_inline]] inline void keep(const Vector& value) {
  asm volatile("" : : "m"(value) : "memory");
}

inline constexpr int kNumChains = 12;  // covers the latency of two units; fits 16 registers

template <typename Vector>
[[gnu::always_inline]] inline void multiply_add(std::int64_t steps) {
  Vector chains[kNumChains];
  for (int c = 0; c < kNumChains; ++c) chains[c] = Vector{} + static_cast<float>(c);
  Vector factor = Vector{} + 0.999F;
  Vector term = Vector{} + 0.001F;
  asm volatile("" : "+m"(factor), "+m"(term));  // constants would be folded away
  for (std::int64_t i = 0; i < steps; ++i) {
    for (Vector& chain : chains) chain = chain * factor + term;
  }
  for (const Vector& chain : chains) keep(chain);
}

using Float4 = float __attribute__((vector_size(16)));
using Float8 = float __attribute__((vector_size(32)));
using Float16 = float __attribute__((vector_size(64)));

// A loop of them for an instruction set.
struct MultiplyAdds {
  void (*run)(std::int64_t steps);
  int vector_bytes;

  double flops(std::int64_t steps) const {
    return 2.0 * kNumChains * vector_bytes / 4 * static_cast<double>(steps);
  }
};

inline void multiply_add_16(std::int64_t steps) { multiply_add<Float4>(steps); }
#ifdef __x86_64__
[[gnu::target("avx2,fma")]] inline void multiply_add_32(std::int64_t steps) {
  multiply_add<Float8>(steps);
}
[[gnu::target("avx512f,fma")]] inline void multiply_add_64(std::int64_t steps) {
  multiply_add<Float16>(steps);
}
#endif

// `instructions`: what a CPU backend is called.
inline MultiplyAdds multiply_adds_for([[maybe_unused]] std::string_view instructions) {
#ifdef __x86_64__
  if (instructions == "avx2") return {multiply_add_32, 32};
  if (instructions != "generic") return {multiply_add_64, 64};
#endif
  return {multiply_add_16, 16};
}

}  // namespace lmtp::bench

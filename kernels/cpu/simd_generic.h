// The vector layer for any processor: four lanes by the compiler's vector extension, a multiply and
// an add where the others have one fused operation. See simd_avx512.h for what each name means.
#pragma once

#include <cstdint>

#include "lmtp/base/half.h"
#include "round_bf16.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

using F = float __attribute__((vector_size(16)));
using I = std::int32_t __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 16;

inline F load(const float* from) {
  F v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
inline F load_bf16(const std::uint16_t* from) {
  std::uint32_t bits[kLanes];
  for (int i = 0; i < kLanes; ++i) bits[i] = std::uint32_t{from[i]} << 16;
  F v;
  __builtin_memcpy(&v, bits, sizeof(v));
  return v;
}
inline void store(float* to, F v) { __builtin_memcpy(to, &v, sizeof(v)); }
inline F broadcast(float value) { return F{value, value, value, value}; }
inline F zero() { return broadcast(0.0F); }
inline F load_first(const float* from, int count) {
  F v = zero();
  __builtin_memcpy(&v, from, static_cast<unsigned>(count) * sizeof(float));
  return v;
}
inline void store_first(float* to, F v, int count) {
  __builtin_memcpy(to, &v, static_cast<unsigned>(count) * sizeof(float));
}
inline F blend(I mask, F yes, F no) {
  return reinterpret_cast<F>((mask & reinterpret_cast<I>(yes)) | (~mask & reinterpret_cast<I>(no)));
}
inline F keep_first(F v, F rest, int count) {
  return blend(I{0, 1, 2, 3} < I{count, count, count, count}, v, rest);
}
inline F add(F a, F b) { return a + b; }
inline F subtract(F a, F b) { return a - b; }
inline F multiply(F a, F b) { return a * b; }
inline F divide(F a, F b) { return a / b; }
inline F multiply_add(F a, F b, F c) { return a * b + c; }
inline F greater_of(F a, F b) { return blend(a > b, a, b); }
inline F lesser_of(F a, F b) { return blend(a < b, a, b); }
inline F where_less(F a, F b, F yes, F no) { return blend(a < b, yes, no); }
inline F absolute(F v) { return reinterpret_cast<F>(reinterpret_cast<I>(v) & 0x7FFFFFFF); }
inline F round_to_whole(F v) {
  // Adding and taking away 1.5 * 2^23 rounds at the units.
  const F shift = broadcast(12582912.0F);
  return (v + shift) - shift;
}
inline F zip_lower(F a, F b) { return F{a[0], b[0], a[1], b[1]}; }
inline F zip_upper(F a, F b) { return F{a[2], b[2], a[3], b[3]}; }
inline F power_of_two(F v) {
  return reinterpret_cast<F>((__builtin_convertvector(v, I) + 127) << 23);
}
// kLanes units (kernels/linear.h) of two bf16 each, from as many numbers in order.
inline F units_of_bf16(F first, F second) {
  std::uint32_t units[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const F& from = i < kLanes / 2 ? first : second;
    const int at = 2 * i % kLanes;
    units[i] = round_to_bf16(from[at]) | (round_to_bf16(from[at + 1]) << 16);
  }
  F result;
  __builtin_memcpy(&result, units, sizeof(result));
  return result;
}
// kLanes units of four unsigned bytes, each the nearest integer + 128. REQUIRES: |number| <= 127,
// or NaN, which becomes any byte.
inline F units_of_int8(const F (&numbers)[4]) {
  // Adding 1.5 * 2^23 rounds at the units; the low byte is then that of the whole number.
  const F shift = broadcast(12582912.0F);
  std::uint32_t units[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const I bits = (reinterpret_cast<I>(numbers[i] + shift) + 128) & 255;
    units[i] = static_cast<std::uint32_t>(bits[0] | (bits[1] << 8) | (bits[2] << 16)) |
               (static_cast<std::uint32_t>(bits[3]) << 24);
  }
  F result;
  __builtin_memcpy(&result, units, sizeof(result));
  return result;
}
// Of pairs of bf16 as f32.
inline F lower_bf16(F pairs) { return reinterpret_cast<F>(reinterpret_cast<I>(pairs) << 16); }
inline F upper_bf16(F pairs) {
  return reinterpret_cast<F>((reinterpret_cast<I>(pairs) >> 16) << 16);
}
// Whether the inputs of a linear of bf16 are widened once, before all products.
inline constexpr bool kWidensInputs = false;
// sum + the two products of bf16 pairs, the lower ones first.
inline F dot_bf16(F a, F b, F sum) {
  sum = multiply_add(lower_bf16(a), lower_bf16(b), sum);
  return multiply_add(upper_bf16(a), upper_bf16(b), sum);
}
// sum + the four products of unsigned bytes of a with signed ones of b; lanes of sum and of the
// result hold the bits of an int32.
inline F dot_int8(F a, F b, F sum) {
  const I x = reinterpret_cast<I>(a);
  const I y = reinterpret_cast<I>(b);
  I total = reinterpret_cast<I>(sum);
  for (int shift = 0; shift < 32; shift += 8) {
    total += ((x >> shift) & 255) * ((y << (24 - shift)) >> 24);
  }
  return reinterpret_cast<F>(total);
}
// v - factor * others, where a lane of v and of the result holds the bits of an int32.
inline F int_difference(F v, const std::int32_t* others, std::int32_t factor) {
  I less;
  __builtin_memcpy(&less, others, sizeof(less));
  return __builtin_convertvector(reinterpret_cast<I>(v) - less * factor, F);
}
inline bool any_at_least(F a, F b) {
  const I mask = a >= b;
  return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
}
inline F to_float(F ints) { return __builtin_convertvector(reinterpret_cast<I>(ints), F); }
inline F shift_right(F words, int count) {
  using U = std::uint32_t __attribute__((vector_size(16)));
  return reinterpret_cast<F>(reinterpret_cast<U>(words) >> static_cast<unsigned>(count));
}
inline F load_f16(const std::uint16_t* from) {
  return F{half_value(from[0]), half_value(from[1]), half_value(from[2]), half_value(from[3])};
}
inline F lower_f16(F units) {
  std::uint32_t bits[kLanes];
  __builtin_memcpy(bits, &units, sizeof(bits));
  return F{half_value(bits[0] & 0xFFFFU), half_value(bits[1] & 0xFFFFU),
           half_value(bits[2] & 0xFFFFU), half_value(bits[3] & 0xFFFFU)};
}
inline F upper_f16(F units) { return lower_f16(shift_right(units, 16)); }
inline F lower_nibbles(F words) {
  return reinterpret_cast<F>(reinterpret_cast<I>(words) & 0x0F0F0F0F);
}
inline F upper_nibbles(F words) { return lower_nibbles(shift_right(words, 4)); }
class Nibbles {
 public:
  explicit Nibbles(float base) : base_(broadcast(base)) {}
  F of(F words) const {
    return __builtin_convertvector(reinterpret_cast<I>(words) & 15, F) - base_;
  }

 private:
  F base_;
};
template <int kIndex>
inline F signed_byte(F words) {
  return __builtin_convertvector((reinterpret_cast<I>(words) << (24 - 8 * kIndex)) >> 24, F);
}
template <int kIndex>
inline F e4m3_byte(F words) {
  const I upper = (reinterpret_cast<I>(words) << (24 - 8 * kIndex)) >> 4;
  return reinterpret_cast<F>(upper & static_cast<std::int32_t>(0x87F00000U)) * 0x1.0p120F;
}
inline F e2m1_nibble(F words) {
  const I upper = (reinterpret_cast<I>(words) << 28) >> 6;
  return reinterpret_cast<F>(upper & static_cast<std::int32_t>(0x81C00000U)) * 0x1.0p126F;
}
// dot_int8 where no byte of the first is above 15. Up to kNibbleDotsMax of them may be added to one
// that starts with zero; add_nibble_dots() makes an int32 of them, plus `sum`. Where the maximum is
// larger than any group, sums are the int32 themselves, and may start with any.
inline constexpr int kNibbleDotsMax = 8;
inline F dot_nibbles(F nibbles, F bytes, F sum) { return dot_int8(nibbles, bytes, sum); }
inline F settled(F sum) { return sum; }
inline F add_nibble_dots(F sum, F dots) {
  return reinterpret_cast<F>(reinterpret_cast<I>(sum) + reinterpret_cast<I>(dots));
}
// The magnitude of an e4m3 number (kernels/e4m3.h) in bf16.
inline std::uint32_t e4m3_magnitude(std::uint32_t code) {
  constexpr std::uint16_t kSubnormal[] = {0,      0x3B00, 0x3B80, 0x3BC0,
                                          0x3C00, 0x3C20, 0x3C40, 0x3C60};
  const std::uint32_t magnitude = code & 0x7FU;
  return magnitude < 8U       ? kSubnormal[magnitude]
         : magnitude == 0x7FU ? 0x7FC0U
                              : (magnitude << 4) + (120U << 7);
}
inline void units_of_e4m3(F words, F (&units)[2]) {
  std::uint32_t codes[kLanes];
  __builtin_memcpy(codes, &words, sizeof(codes));
  for (int first = 0; first < 2; ++first) {
    std::uint32_t pairs[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const std::uint32_t both = codes[i] >> (8 * first);
      pairs[i] =
          e4m3_magnitude(both) | (e4m3_magnitude(both >> 16) << 16) | ((both << 8) & 0x80008000U);
    }
    __builtin_memcpy(&units[first], pairs, sizeof(pairs));
  }
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

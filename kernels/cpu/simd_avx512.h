// The vector layer for AVX-512 (F, BW, DQ, VL). Every kernel_*.h is written on these names; the
// namespace separates the code of the instruction sets.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lmtp::kernels::LMTP_KERNELS_ISA {

using F = __m512;
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;

inline F load(const float* from) { return _mm512_loadu_ps(from); }
// bf16 as f32.
inline F load_bf16(const std::uint16_t* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline void store(float* to, F v) { _mm512_storeu_ps(to, v); }
inline F broadcast(float value) { return _mm512_set1_ps(value); }
inline F zero() { return _mm512_setzero_ps(); }
inline __mmask16 first_lanes(int count) {
  return static_cast<__mmask16>((1U << static_cast<unsigned>(count)) - 1U);
}
// The first `count` lanes, the others zero. REQUIRES: 0 <= count <= kLanes, as for the next.
inline F load_first(const float* from, int count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
inline void store_first(float* to, F v, int count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), v);
}
// The first `count` lanes of v, the others of `rest`.
inline F keep_first(F v, F rest, int count) {
  return _mm512_mask_blend_ps(first_lanes(count), rest, v);
}
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F subtract(F a, F b) { return _mm512_sub_ps(a, b); }
inline F multiply(F a, F b) { return _mm512_mul_ps(a, b); }
inline F divide(F a, F b) { return _mm512_div_ps(a, b); }
// a * b + c, rounded once.
inline F multiply_add(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
// The greater and the lesser; b where either is NaN.
inline F greater_of(F a, F b) { return _mm512_max_ps(a, b); }
inline F lesser_of(F a, F b) { return _mm512_min_ps(a, b); }
// a < b ? yes : no
inline F where_less(F a, F b, F yes, F no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
inline F absolute(F v) { return _mm512_abs_ps(v); }
// The nearest whole number, ties to even. REQUIRES: |v| < 2^22.
inline F round_to_whole(F v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// Interleaves the lanes of a and b: of their lower halves, and of their upper halves.
inline F zip_lower(F a, F b) {
  const __m512i lanes = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  return _mm512_permutex2var_ps(a, lanes, b);
}
inline F zip_upper(F a, F b) {
  const __m512i lanes =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return _mm512_permutex2var_ps(a, lanes, b);
}
// 2^v of a whole number v in [-126, 127].
inline F power_of_two(F v) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(v), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}
// The lower and the upper bf16 of units, as f32.
inline constexpr bool kWidensInputs = false;
// Keeps gcc from moving sums about, of which there are nearly as many as registers.
inline F settled(F sum) {
  asm("" : "+v"(sum));
  return sum;
}
inline F lower_bf16(F units) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(units), 16));
}
inline F upper_bf16(F units) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(units),
                                              _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}
// kLanes units of four unsigned bytes; see simd_generic.h.
inline F units_of_int8(const F (&numbers)[4]) {
  __m512i packed = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(numbers[0])));
  packed = _mm512_inserti32x4(packed, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(numbers[1])), 1);
  packed = _mm512_inserti32x4(packed, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(numbers[2])), 2);
  packed = _mm512_inserti32x4(packed, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(numbers[3])), 3);
  return _mm512_castsi512_ps(_mm512_xor_si512(packed, _mm512_set1_epi8(-128)));
}
// v - factor * others, where a lane of v and of the result holds the bits of an int32.
inline F int_difference(F v, const std::int32_t* others, std::int32_t factor) {
  const __m512i less = _mm512_loadu_si512(others);
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_castps_si512(v),
                                             _mm512_mullo_epi32(less, _mm512_set1_epi32(factor))));
}
// Is any lane >= the other's?
inline bool any_at_least(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ) != 0; }
// The lanes' ints as floats, logical shifts of them, and kLanes numbers of 16 bits, widened.
inline F to_float(F ints) { return _mm512_cvtepi32_ps(_mm512_castps_si512(ints)); }
inline F shift_right(F words, int count) {
  return _mm512_castsi512_ps(
      _mm512_srli_epi32(_mm512_castps_si512(words), static_cast<unsigned>(count)));
}
inline F load_f16(const std::uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
// The lower and the upper f16 of units, as f32.
inline F lower_f16(F units) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_castps_si512(units)));
}
inline F upper_f16(F units) { return lower_f16(shift_right(units, 16)); }
// Of every byte the lower half, and the upper one.
inline F lower_nibbles(F words) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi8(15)));
}
inline F upper_nibbles(F words) { return lower_nibbles(shift_right(words, 4)); }
// The lowest four bits of each lane, less a base.
class Nibbles {
 public:
  explicit Nibbles(float base)
      : table_(_mm512_sub_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                             broadcast(base))) {}
  F of(F words) const { return _mm512_permutexvar_ps(_mm512_castps_si512(words), table_); }

 private:
  F table_;
};
// Byte kIndex of each lane, signed, and as e4m3.
template <int kIndex>
inline F signed_byte(F words) {
  const __m512i upper = _mm512_slli_epi32(_mm512_castps_si512(words), 24 - 8 * kIndex);
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(upper, 24));
}
template <int kIndex>
inline F e4m3_byte(F words) {
  // The exponent is moved to f32's by a multiplication, which puts subnormals right as well.
  const __m512i upper = _mm512_slli_epi32(_mm512_castps_si512(words), 24 - 8 * kIndex);
  const __m512i bits = _mm512_and_si512(_mm512_srai_epi32(upper, 4),
                                        _mm512_set1_epi32(static_cast<int>(0x87F00000U)));
  return multiply(_mm512_castsi512_ps(bits), broadcast(0x1.0p120F));
}
// The lowest four bits of each lane as e2m1.
inline F e2m1_nibble(F words) {
  const F values =
      _mm512_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6);
  return _mm512_permutexvar_ps(_mm512_castps_si512(words), values);
}
// Words of four e4m3 (kernels/e4m3.h) as units of two bf16: of bytes 0 and 2, and of 1 and 3.
inline void units_of_e4m3(F words, F (&units)[2]) {
  // Codes in the upper bytes of each 16 bits.
  const auto widened = [](__m512i codes) {
    const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi16(0x7F00));
    const __m512i normal =
        _mm512_add_epi16(_mm512_srli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
    // Of n * 2^-9 in bf16 the lower bytes, n up to 7, then the upper ones.
    const __m512i table =
        _mm512_set4_epi32(0x3C3C3C3C, 0x3B3B3B00, 0x60402000, static_cast<int>(0xC0800000U));
    const __m512i index = _mm512_or_si512(_mm512_or_si512(magnitude, _mm512_set1_epi16(0x0800)),
                                          _mm512_srli_epi16(magnitude, 8));
    const __mmask32 is_small = _mm512_cmplt_epi16_mask(magnitude, _mm512_set1_epi16(0x0800));
    const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7F00));
    const __m512i number =
        _mm512_mask_blend_epi16(is_small, normal, _mm512_shuffle_epi8(table, index));
    const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi16(static_cast<short>(0x8000)));
    return _mm512_castsi512_ps(
        _mm512_or_si512(sign, _mm512_mask_blend_epi16(is_nan, number, _mm512_set1_epi16(0x7FC0))));
  };
  units[0] = widened(_mm512_slli_epi16(_mm512_castps_si512(words), 8));
  units[1] = widened(_mm512_castps_si512(words));
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

// The vector layer for AVX2 with FMA; see simd_avx512.h for what each name means.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lmtp::kernels::LMTP_KERNELS_ISA {

using F = __m256;
inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;

inline F load(const float* from) { return _mm256_loadu_ps(from); }
// bf16 as f32.
inline F load_bf16(const std::uint16_t* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline void store(float* to, F v) { _mm256_storeu_ps(to, v); }
inline F broadcast(float value) { return _mm256_set1_ps(value); }
inline F zero() { return _mm256_setzero_ps(); }
inline __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline F load_first(const float* from, int count) {
  return _mm256_maskload_ps(from, first_lanes(count));
}
inline void store_first(float* to, F v, int count) {
  _mm256_maskstore_ps(to, first_lanes(count), v);
}
inline F keep_first(F v, F rest, int count) {
  return _mm256_blendv_ps(rest, v, _mm256_castsi256_ps(first_lanes(count)));
}
inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F subtract(F a, F b) { return _mm256_sub_ps(a, b); }
inline F multiply(F a, F b) { return _mm256_mul_ps(a, b); }
inline F divide(F a, F b) { return _mm256_div_ps(a, b); }
inline F multiply_add(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F greater_of(F a, F b) { return _mm256_max_ps(a, b); }
inline F lesser_of(F a, F b) { return _mm256_min_ps(a, b); }
inline F where_less(F a, F b, F yes, F no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
inline F absolute(F v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), v); }
inline F round_to_whole(F v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline F zip_lower(F a, F b) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}
inline F zip_upper(F a, F b) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}
inline F power_of_two(F v) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
// See simd_generic.h, for this and the next three.
inline F units_of_bf16(F first, F second) {
  const auto rounded = [](F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(0x7FC0),
                              _mm256_castps_si256(nan));
  };
  // Packing works on halves of 128 bits each; the second step puts the quarters in order.
  const __m256i packed = _mm256_packus_epi32(rounded(first), rounded(second));
  return _mm256_castsi256_ps(_mm256_permute4x64_epi64(packed, 0xD8));
}
inline F units_of_int8(const F (&numbers)[4]) {
  const auto pair = [&](int i) {
    return _mm256_packs_epi32(_mm256_cvtps_epi32(numbers[i]), _mm256_cvtps_epi32(numbers[i + 1]));
  };
  const __m256i packed = _mm256_packs_epi16(pair(0), pair(2));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_castsi256_ps(
      _mm256_xor_si256(_mm256_permutevar8x32_epi32(packed, order), _mm256_set1_epi8(-128)));
}
inline F lower_bf16(F pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
inline F upper_bf16(F pairs) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(pairs), high));
}
inline constexpr bool kWidensInputs = true;
inline F dot_bf16(F a, F b, F sum) {
  sum = multiply_add(lower_bf16(a), lower_bf16(b), sum);
  return multiply_add(upper_bf16(a), upper_bf16(b), sum);
}
inline F dot_int8(F a, F b, F sum) {
  const __m256i x = _mm256_castps_si256(a);
  const __m256i y = _mm256_castps_si256(b);
  // In 16 bits nothing overflows: the even bytes, then the odd ones.
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(y, 8));
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(sum), _mm256_add_epi32(even, odd)));
}
inline F int_difference(F v, const std::int32_t* others, std::int32_t factor) {
  const __m256i less = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(others));
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_castps_si256(v),
                                             _mm256_mullo_epi32(less, _mm256_set1_epi32(factor))));
}
inline bool any_at_least(F a, F b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)) != 0;
}
inline F to_float(F ints) { return _mm256_cvtepi32_ps(_mm256_castps_si256(ints)); }
inline F shift_right(F words, int count) {
  return _mm256_castsi256_ps(_mm256_srli_epi32(_mm256_castps_si256(words), count));
}
inline F load_f16(const std::uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
inline F f16_of_words(__m256i words) {
  // Packing works on halves of 128 bits each.
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
inline F lower_f16(F units) {
  return f16_of_words(_mm256_and_si256(_mm256_castps_si256(units), _mm256_set1_epi32(0xFFFF)));
}
inline F upper_f16(F units) {
  return f16_of_words(_mm256_srli_epi32(_mm256_castps_si256(units), 16));
}
inline F lower_nibbles(F words) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(words), _mm256_set1_epi8(15)));
}
inline F upper_nibbles(F words) { return lower_nibbles(shift_right(words, 4)); }
class Nibbles {
 public:
  explicit Nibbles(float base) : base_(broadcast(base)) {}
  F of(F words) const {
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(words), _mm256_set1_epi32(15));
    return subtract(_mm256_cvtepi32_ps(bits), base_);
  }

 private:
  F base_;
};
template <int kIndex>
inline F signed_byte(F words) {
  const __m256i upper = _mm256_slli_epi32(_mm256_castps_si256(words), 24 - 8 * kIndex);
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(upper, 24));
}
template <int kIndex>
inline F e4m3_byte(F words) {
  const __m256i upper = _mm256_slli_epi32(_mm256_castps_si256(words), 24 - 8 * kIndex);
  const __m256i bits = _mm256_and_si256(_mm256_srai_epi32(upper, 4),
                                        _mm256_set1_epi32(static_cast<int>(0x87F00000U)));
  return multiply(_mm256_castsi256_ps(bits), broadcast(0x1.0p120F));
}
inline F e2m1_nibble(F words) {
  // No multiplication that moves the exponent: 0.5 would go through it as a subnormal number, which
  // is slow.
  const __m256i bits = _mm256_castps_si256(words);
  const __m256 sizes = _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6), bits);
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(bits, 28),
                                        _mm256_set1_epi32(static_cast<int>(0x80000000U)));
  return _mm256_or_ps(sizes, _mm256_castsi256_ps(sign));
}
// Sums of pairs rest in 16 bits: a pair is at most 2 * 15 * 128, and eight of them are below 2^15.
inline constexpr int kNibbleDotsMax = 8;
inline F dot_nibbles(F nibbles, F bytes, F sum) {
  return _mm256_castsi256_ps(_mm256_add_epi16(
      _mm256_castps_si256(sum),
      _mm256_maddubs_epi16(_mm256_castps_si256(nibbles), _mm256_castps_si256(bytes))));
}
// Keeps gcc from adding in another order, and from moving sums about: there are few registers.
inline F settled(F sum) {
  asm("" : "+x"(sum));
  return sum;
}
inline F add_nibble_dots(F sum, F dots) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(sum),
                       _mm256_madd_epi16(_mm256_castps_si256(dots), _mm256_set1_epi16(1))));
}
inline void units_of_e4m3(F words, F (&units)[2]) {
  const auto widened = [](__m256i codes) {
    const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi16(0x7F00));
    const __m256i normal =
        _mm256_add_epi16(_mm256_srli_epi16(magnitude, 4), _mm256_set1_epi16(120 << 7));
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_set_epi32(0x3C3C3C3C, 0x3B3B3B00, 0x60402000, static_cast<int>(0xC0800000U)));
    const __m256i index = _mm256_or_si256(_mm256_or_si256(magnitude, _mm256_set1_epi16(0x0800)),
                                          _mm256_srli_epi16(magnitude, 8));
    const __m256i is_small = _mm256_cmpgt_epi16(_mm256_set1_epi16(0x0800), magnitude);
    const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7F00));
    const __m256i number = _mm256_blendv_epi8(normal, _mm256_shuffle_epi8(table, index), is_small);
    const __m256i sign = _mm256_and_si256(codes, _mm256_set1_epi16(static_cast<short>(0x8000)));
    return _mm256_castsi256_ps(
        _mm256_or_si256(sign, _mm256_blendv_epi8(number, _mm256_set1_epi16(0x7FC0), is_nan)));
  };
  units[0] = widened(_mm256_slli_epi16(_mm256_castps_si256(words), 8));
  units[1] = widened(_mm256_castps_si256(words));
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

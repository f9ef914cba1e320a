// Products of bf16 and int8 units for AVX-512 without BF16 and VNNI; see simd_generic.h.
#pragma once

#include "simd_avx512.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline F units_of_bf16(F first, F second) {
  const auto rounded = [](F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i result =
        _mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                              _mm512_set1_epi32(0x7FC0));
    return _mm512_cvtepi32_epi16(result);
  };
  return _mm512_castsi512_ps(
      _mm512_inserti64x4(_mm512_castsi256_si512(rounded(first)), rounded(second), 1));
}
inline F dot_bf16(F a, F b, F sum) {
  sum = multiply_add(lower_bf16(a), lower_bf16(b), sum);
  return multiply_add(upper_bf16(a), upper_bf16(b), sum);
}
inline F dot_int8(F a, F b, F sum) {
  const __m512i x = _mm512_castps_si512(a);
  const __m512i y = _mm512_castps_si512(b);
  // In 16 bits nothing overflows: the even bytes, then the odd ones.
  const __m512i even = _mm512_madd_epi16(_mm512_and_si512(x, _mm512_set1_epi16(255)),
                                         _mm512_srai_epi16(_mm512_slli_epi16(y, 8), 8));
  const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(x, 8), _mm512_srai_epi16(y, 8));
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(sum), _mm512_add_epi32(even, odd)));
}
// Sums of pairs rest in 16 bits: a pair is at most 2 * 15 * 128, and eight of them are below 2^15.
inline constexpr int kNibbleDotsMax = 8;
inline F dot_nibbles(F nibbles, F bytes, F sum) {
  return _mm512_castsi512_ps(_mm512_add_epi16(
      _mm512_castps_si512(sum),
      _mm512_maddubs_epi16(_mm512_castps_si512(nibbles), _mm512_castps_si512(bytes))));
}
inline F add_nibble_dots(F sum, F dots) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(sum),
                       _mm512_madd_epi16(_mm512_castps_si512(dots), _mm512_set1_epi16(1))));
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

// Products of bf16 and int8 units for AVX-512 without instructions of their own; see
// simd_generic.h.
#pragma once

#include "simd_avx512.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline F dot_bf16(F a, F b, F sum) {
  const __m512i x = _mm512_castps_si512(a);
  const __m512i y = _mm512_castps_si512(b);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  sum = multiply_add(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                     _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), sum);
  return multiply_add(_mm512_castsi512_ps(_mm512_and_si512(x, high)),
                      _mm512_castsi512_ps(_mm512_and_si512(y, high)), sum);
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

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

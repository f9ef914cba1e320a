// Products of bf16 and int8 units by AVX-512 BF16 and VNNI; see simd_generic.h. The processor's
// bf16 product treats subnormal numbers as zero and rounds each of its two sums.
#pragma once

#include "simd_avx512.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline F units_of_bf16(F first, F second) {
  return reinterpret_cast<F>(_mm512_cvtne2ps_pbh(second, first));
}
inline F dot_bf16(F a, F b, F sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
inline F dot_int8(F a, F b, F sum) {
  return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(a),
                                                 _mm512_castps_si512(b)));
}
inline constexpr int kNibbleDotsMax = 1 << 20;  // the sums are the int32 themselves
// As text: with the intrinsic's other type of sums gcc 12 copies and spills them.
inline F dot_nibbles(F nibbles, F bytes, F sum) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(nibbles), "v"(bytes));
  return sum;
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA

// One function for each instruction set that the kernels are compiled for.
#pragma once

namespace lmtp::kernels {

struct Backend;

const Backend& generic_backend();
// REQUIRES of a use: the processor has AVX2 and FMA.
const Backend& avx2_backend();
// REQUIRES of a use: the processor has AVX-512 F, BW, DQ and VL.
const Backend& avx512_backend();
// REQUIRES of a use: as avx512_backend(), and BF16 and VNNI.
const Backend& avx512_dot_backend();
// REQUIRES of a use: as avx512_dot_backend(), and AMX TILE, BF16 and INT8, granted by the operating
// system.
const Backend& amx_backend();

}  // namespace lmtp::kernels

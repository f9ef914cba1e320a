#define LMTP_KERNELS_ISA avx512_dot
#include "backends.h"
#include "simd_avx512_dot.h"
// The kernels are written on the vector layer above.
#include "kernel_math.h"

#include "kernel_attention.h"
#include "kernel_grouped.h"
#include "kernel_linear.h"
#include "kernel_lora.h"
#include "kernel_rows.h"

#include "backend_table.h"

namespace lmtp::kernels {

const Backend& avx512_dot_backend() {
  static const Backend kBackend = avx512_dot::make_backend("avx512_dot");
  return kBackend;
}

}  // namespace lmtp::kernels

#define LMTP_KERNELS_ISA avx512
#include "backends.h"
#include "simd_avx512_widened.h"
// The kernels are written on the vector layer above.
#include "kernel_math.h"

#include "kernel_attention.h"
#include "kernel_grouped.h"
#include "kernel_linear.h"
#include "kernel_lora.h"
#include "kernel_rows.h"

#include "backend_table.h"

namespace lmtp::kernels {

const Backend& avx512_backend() {
  static const Backend kBackend = avx512::make_backend("avx512");
  return kBackend;
}

}  // namespace lmtp::kernels

#define LMTP_KERNELS_ISA avx2
#include "backends.h"
#include "simd_avx2.h"
// The kernels are written on the vector layer above.
#include "kernel_math.h"

#include "kernel_attention.h"
#include "kernel_grouped.h"
#include "kernel_linear.h"
#include "kernel_lora.h"
#include "kernel_rows.h"

#include "backend_table.h"

namespace lmtp::kernels {

const Backend& avx2_backend() {
  static const Backend kBackend = avx2::make_backend("avx2");
  return kBackend;
}

}  // namespace lmtp::kernels

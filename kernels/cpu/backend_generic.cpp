#define LMTP_KERNELS_ISA generic
#include "backends.h"
#include "simd_generic.h"
// The kernels are written on the vector layer above.
#include "kernel_math.h"

#include "kernel_attention.h"
#include "kernel_grouped.h"
#include "kernel_linear.h"
#include "kernel_lora.h"
#include "kernel_rows.h"

#include "backend_table.h"

namespace lmtp::kernels {

const Backend& generic_backend() {
  static const Backend kBackend = generic::make_backend("generic");
  return kBackend;
}

}  // namespace lmtp::kernels

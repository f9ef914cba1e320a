#define LMTP_KERNELS_ISA amx
#include "backends.h"
#include "simd_avx512_dot.h"
// The kernels are written on the vector layer above.
#include "kernel_math.h"

#include "kernel_attention.h"
#include "kernel_attention_amx.h"
#include "kernel_grouped.h"
#include "kernel_linear.h"
#include "kernel_linear_amx.h"
#include "kernel_lora.h"
#include "kernel_rows.h"

#include "backend_table.h"

namespace lmtp::kernels {

const Backend& amx_backend() {
  static const Backend kBackend = [] {
    Backend backend = amx::make_backend("amx");
    backend.linear = amx::tile_linear;
    backend.paged_attention = amx::tile_attention;
    return backend;
  }();
  return kBackend;
}

}  // namespace lmtp::kernels

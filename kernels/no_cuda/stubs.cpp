#include "kernels/backend.h"
#include "kernels/device.h"

namespace lmtp::kernels::cuda {

Probe probe(int) {
  return {.available = false,
          .reason =
              "this program was built without CUDA; run tools/setup --cuda, which brings the "
              "compiler, and build it again (tools/serve MODEL --cuda does both)",
          .name = {}};
}

const Backend& backend() {
  LMTP_CHECK(false, "built without CUDA");
  return cpu_backend();
}

}  // namespace lmtp::kernels::cuda

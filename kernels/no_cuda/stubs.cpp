#include "kernels/backend.h"
#include "kernels/device.h"

namespace lmtp::kernels::cuda {

Probe probe(int) {
  return {.available = false,
          .reason =
              "this program was built without CUDA; build it where nvcc is found "
              "(cmake --preset cuda)",
          .name = {}};
}

const Backend& backend() {
  LMTP_CHECK(false, "built without CUDA");
  return cpu_backend();
}

}  // namespace lmtp::kernels::cuda

#include "kernels/device.h"

namespace lmtp::kernels::cuda {

Probe probe() {
  return {.available = false,
          .reason =
              "this program was built without CUDA; build it where nvcc is found "
              "(cmake --preset cuda)",
          .name = {}};
}

}  // namespace lmtp::kernels::cuda

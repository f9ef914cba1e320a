// rows_cases.cpp over the backends of the processor.
#include "kernel_support.h"

namespace lmtp {

std::vector<const kernels::Backend*> testing::backends_under_test() {
  return kernels::cpu_backends();
}

}  // namespace lmtp

// In an object of its own: tests link the kernel's emulation and the other stubs.
#include "kernels/sum_parts.h"

namespace lmtp::kernels::cuda {

void sum_parts(Stream&, const SumPartsArgs&) { LMTP_CHECK(false, "built without CUDA"); }

}  // namespace lmtp::kernels::cuda

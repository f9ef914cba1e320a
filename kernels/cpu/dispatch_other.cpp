#include "backends.h"
#include "kernels/backend.h"

namespace lmtp::kernels {

std::vector<const Backend*> cpu_backends() { return {&generic_backend()}; }

}  // namespace lmtp::kernels

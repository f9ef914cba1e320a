#include "gloo_group.h"

namespace lmtp::libtorch {

Result<std::unique_ptr<GlooGroup>> connect_gloo(int /*num_ranks*/,
                                                std::chrono::milliseconds /*timeout*/) {
  return Error{ErrorCode::kUnavailable,
               "this build has no gloo: install its headers (Debian: libgloo-dev) and build again"};
}

}  // namespace lmtp::libtorch

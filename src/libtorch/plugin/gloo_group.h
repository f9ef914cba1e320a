// Library::make_gloo_group, of a build that has gloo's headers (gloo_group.cpp) or has not
// (no_gloo.cpp).
#pragma once

#include <chrono>
#include <memory>

#include "lmtp/libtorch/library.h"

namespace lmtp::libtorch {

// Does not throw.
Result<std::unique_ptr<GlooGroup>> connect_gloo(int num_ranks, std::chrono::milliseconds timeout);

}  // namespace lmtp::libtorch

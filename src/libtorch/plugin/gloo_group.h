// Library::make_gloo_group.
#pragma once

#include <chrono>
#include <memory>

#include "lmtp/libtorch/library.h"

namespace lmtp::libtorch {

// Does not throw.
Result<std::unique_ptr<GlooGroup>> connect_gloo(int num_ranks, std::chrono::milliseconds timeout);

}  // namespace lmtp::libtorch

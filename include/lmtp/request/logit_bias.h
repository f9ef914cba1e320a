// A LogitBias from another one and tokens that are impossible.
#pragma once

#include <memory>
#include <span>

#include "lmtp/base/ids.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp {

// `bias`, which may be null, with -inf for these ids. REQUIRES: they ascend, without duplicates.
std::shared_ptr<const LogitBias> forbid(const LogitBias* bias, std::span<const TokenId> ids);

}  // namespace lmtp

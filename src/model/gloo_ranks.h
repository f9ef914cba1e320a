// GlooRanks: ranks that are threads of this process and send each other what they add, by c10d's
// gloo. What would be sent to another machine goes through the loopback interface.
#pragma once

#include <chrono>
#include <memory>

#include "lmtp/base/result.h"
#include "lmtp/model/rank_group.h"

namespace lmtp::model {

// The error says that there is no libtorch here, and what to do, or why the ranks cannot be
// connected. REQUIRES: 1 <= count <= kRanksMax.
Result<std::unique_ptr<RankGroup>> make_gloo_ranks(int count, std::chrono::milliseconds timeout);

}  // namespace lmtp::model

// NcclRanks: ranks that are threads of this process, each with a CUDA device, and add on the
// devices what NCCL brings them there. Sums are in the order of ranks, as with all transports;
// NCCL's own, whose order depends on the size of a message, are not used.
//
// It has not run on devices yet: that takes two of them.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/model/rank_group.h"
#include "nccl_library.h"

namespace lmtp::model {

// A rank for each of `devices`, by the driver's numbers. Its sums and gathers only enqueue work on
// the rank's stream; what fails in that, and a group that was ended, is thrown by the stream's
// synchronize(), or by the next call. A rank that is behind the others for `timeout` ends the
// group.
// The error says why the devices cannot be connected. `nccl` outlives the group.
Result<std::unique_ptr<RankGroup>> make_nccl_ranks(const NcclApi& nccl,
                                                   const std::vector<int>& devices,
                                                   std::chrono::milliseconds timeout);

}  // namespace lmtp::model

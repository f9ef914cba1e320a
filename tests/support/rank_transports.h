// What carries the sums of ranks in tests.
#pragma once

#include <vector>

#include "lmtp/model/rank_group.h"

namespace lmtp::testing {

// Those that this build has: without libtorch no gloo.
inline std::vector<model::Transport> rank_transports() {
  std::vector<model::Transport> transports = {model::Transport::kLocal};
  if (model::make_rank_group(model::Transport::kGloo, 2).ok()) {
    transports.push_back(model::Transport::kGloo);
  }
  return transports;
}

}  // namespace lmtp::testing

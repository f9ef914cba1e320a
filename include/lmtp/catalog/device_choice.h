// --device and --communicator: what the user may write.
#pragma once

#include <optional>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/model/rank_group.h"

namespace lmtp::catalog {

// "cpu": none; "cuda", "cuda:N": the number of the device.
Result<std::optional<int>> parse_device(const std::string& name);

// "auto", "local", "gloo", "nccl": what carries the sums of so many ranks. Refuses what one rank
// alone has no use for, and NCCL on a CPU.
Result<model::Transport> parse_communicator(const std::string& name, int num_ranks, bool on_device);

// Whether so many ranks can be connected so here: may take a second, where a library is loaded.
Result<void> check_communicator(const std::string& name, int num_ranks, bool on_device);

}  // namespace lmtp::catalog

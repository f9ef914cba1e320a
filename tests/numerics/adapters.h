// Adapters for the models of a grid.
#pragma once

#include <memory>
#include <vector>

#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"
#include "lmtp/request/adapter.h"

namespace lmtp::numerics {

// Of a batch with adapters a stream of four has none, the others one of these each.
inline constexpr int kNumAdapters = 3;

// Writes kNumAdapters folders as peft does, of random numbers and other ranks each, over all linear
// layers of the model, and reads them for its agents.
Result<std::vector<std::shared_ptr<const Adapter>>> make_adapters(
    const agent::AgentOptions& options);

}  // namespace lmtp::numerics

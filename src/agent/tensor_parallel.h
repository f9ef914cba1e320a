// Tensor parallelism: the ModelAgent of a model that is divided among ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"
#include "lmtp/model/communicator.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::agent {

// Makes the agent of one rank, on the rank's own thread, which makes all calls of it.
using MakeRank = std::function<Result<std::unique_ptr<scheduler::ModelAgent>>(
    std::shared_ptr<model::Communicator> communicator, const scheduler::LoadProgress& progress)>;

// Ranks that are threads of this process, each with an agent of its own. Every one is given the
// same plans and computes, in the same bits, the same result: that of the first one is returned.
// A rank that fails, or does not come to a sum, ends the group: the step fails, is_lost() says so,
// and no thread waits any more.
Result<std::unique_ptr<scheduler::ModelAgent>> make_tensor_parallel(
    const AgentOptions& options, const scheduler::LoadProgress& progress, const MakeRank& make);

}  // namespace lmtp::agent

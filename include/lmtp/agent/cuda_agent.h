// A ModelAgent that computes on a CUDA device: weights, keys and values in bfloat16, float16 or
// float32, all else in float32.
#pragma once

#include <memory>

#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::agent {

// Loads the model: seconds. Any thread; the agent may then be used from another one.
// The error says in a line what is missing (a device, memory, a file) and the remedy.
// REQUIRES: options.cuda_device is given; weight_type is not kInt8.
Result<std::unique_ptr<scheduler::ModelAgent>> make_cuda_agent(
    const AgentOptions& options, const scheduler::LoadProgress& progress);

}  // namespace lmtp::agent

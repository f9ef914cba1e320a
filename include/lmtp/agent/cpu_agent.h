// A ModelAgent that computes on the CPU: weights in float32, bfloat16 or int8, all else in float32.
#pragma once

#include <memory>

#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::agent {

// Loads the model: seconds. Any thread; the agent may then be used from another one.
// The error names the file and the remedy. REQUIRES: options.cuda_device is none.
Result<std::unique_ptr<scheduler::ModelAgent>> make_cpu_agent(
    const AgentOptions& options, const scheduler::LoadProgress& progress);

}  // namespace lmtp::agent

// The ModelAgent: a model on the CPU or on a CUDA device. Weights are float32, bfloat16, float16
// (on a device), int8 or int4, keys and values as kv_type() says, all else is float32.
#pragma once

#include <memory>

#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::agent {

// Loads the model: seconds. Any thread; the agent may then be used from another one.
// The error says in a line what is missing (a device, memory, a file) and the remedy.
// REQUIRES: on a CPU weight_type is not kF16; nowhere it is kWidened.
Result<std::unique_ptr<scheduler::ModelAgent>> make_agent(const AgentOptions& options,
                                                          const scheduler::LoadProgress& progress);

}  // namespace lmtp::agent

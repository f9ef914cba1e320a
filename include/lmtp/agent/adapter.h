// LoRA adapters, as the ModelAgent takes them.
#pragma once

#include <memory>
#include <string>

#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"
#include "lmtp/request/adapter.h"

namespace lmtp::agent {

// Reads the adapter in `folder` (model::read_lora) for agents that are made from these options,
// whatever their KV cache. rank_max: [1, model::kLoraRankMax]. The error says what is wrong with
// it, or that such an agent takes none. Seconds; any thread.
Result<std::shared_ptr<const Adapter>> read_adapter(const AgentOptions& options,
                                                    const std::string& name,
                                                    const std::string& folder, int rank_max);

}  // namespace lmtp::agent

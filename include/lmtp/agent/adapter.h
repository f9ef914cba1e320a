// LoRA adapters, as the ModelAgent takes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"
#include "lmtp/request/adapter.h"

namespace lmtp::agent {

// Whether agents that are made from these options take adapters; else why not. Any thread.
Result<void> takes_adapters(const AgentOptions& options);

struct AdapterOptions {
  int rank_max = 64;                   // [1, model::kLoraRankMax]
  int blocks_max = INT32_MAX;          // of the KV cache, that it may take
  std::function<bool()> goes_on = {};  // model::LoraOptions'
};

// Reads an adapter (model::read_lora) for agents that are made from these options, whatever their
// KV cache. The error says what is wrong with it, or that such an agent takes none. Seconds; any
// thread.
Result<std::shared_ptr<const Adapter>> read_adapter(const AgentOptions& options,
                                                    const AdapterSource& source,
                                                    const AdapterOptions& limits);

}  // namespace lmtp::agent

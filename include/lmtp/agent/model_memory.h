// The memory that a model will take of a machine or a device, before it is loaded.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/linear.h"
#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"

namespace lmtp::agent {

// Of all ranks together, where the model is divided.
struct ModelMemory {
  std::int64_t weights_bytes = 0;  // and all else that does not depend on the KV cache
  std::int64_t kv_bytes_min = 0;   // the smallest KV cache that the agent accepts
  std::int64_t num_parameters = 0;
};

// An estimate on the safe side, from the config alone: milliseconds. The error says why the model
// cannot be computed on that device. Any thread.
Result<ModelMemory> estimate_memory(const AgentOptions& options);

// The longest stream that the KV cache of these options can hold: the model's own context, or less
// where that would take more than kv_cache_bytes. Never less than kContextLengthMin, or the model's
// own. Any thread. REQUIRES: kv_cache_bytes > 0.
inline constexpr int kContextLengthMin = 256;
int servable_context(const AgentOptions& options);

// What the machine and the control groups around this process still allow; or what is free on the
// device, of num_devices from that one on so many times as is free on each. nullopt if that cannot
// be read. Any thread.
std::optional<std::int64_t> available_memory_bytes(std::optional<int> cuda_device = {},
                                                   int num_devices = 1);

}  // namespace lmtp::agent

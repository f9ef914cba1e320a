// What a model will take of this machine's memory, before it is loaded.
#pragma once

#include <cstdint>
#include <optional>

#include "lmtp/agent/cpu_agent.h"
#include "lmtp/base/result.h"

namespace lmtp::agent {

struct CpuMemory {
  std::int64_t weights_bytes = 0;  // and what else is taken whatever is served
  std::int64_t kv_bytes_min = 0;   // the smallest KV cache that make_cpu_agent accepts
  std::int64_t num_parameters = 0;
};

// An estimate on the safe side, from the config alone: milliseconds. Any thread.
Result<CpuMemory> estimate_cpu_memory(const CpuAgentOptions& options);

// The longest stream that the KV cache of these options can hold: the model's own context, or less
// where that would take more than kv_cache_bytes (0: default_kv_cache_bytes() now). Never less than
// kContextLengthMin, or the model's own. Any thread.
inline constexpr int kContextLengthMin = 256;
int servable_context(const CpuAgentOptions& options);

// What the machine and the control groups around this process still allow; nothing where the system
// does not say. Any thread.
std::optional<std::int64_t> available_memory_bytes();

}  // namespace lmtp::agent

// Loading a model's agent, with the adapters that it is served with from its start.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/scheduler/model_agent.h"
#include "registry_actor.h"

namespace lmtp::registry {

// `adapters`: the slot's; those that have not been read before are. Seconds; runs as a job.
Result<std::unique_ptr<scheduler::ModelAgent>> load_agent(const ModelSlot& slot,
                                                          std::int64_t kv_bytes,
                                                          const scheduler::LoadProgress& progress,
                                                          std::vector<ServedAdapter>& adapters);

}  // namespace lmtp::registry

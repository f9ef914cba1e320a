// What an engine gives to its scheduler and reads from it.
#pragma once

#include <cstdint>
#include <memory>

#include "lmtp/engine/engine.h"
#include "lmtp/request/request.h"
#include "lmtp/scheduler/model_agent.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::engine {

std::unique_ptr<scheduler::Scheduler> make_scheduler(const scheduler::AgentInfo& agent,
                                                     const ModelLimits& limits,
                                                     const EngineOptions& options,
                                                     const scheduler::SchedulerCounters& counters);

// seed: where the request has none.
std::unique_ptr<scheduler::Sequence> make_sequence(Request request, const ModelLimits& limits,
                                                   std::uint64_t seed);

void read_counters(const scheduler::Scheduler& scheduler, EngineStats& stats);

}  // namespace lmtp::engine

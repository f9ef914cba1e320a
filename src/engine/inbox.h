// The commands that reach an engine's thread, in one queue.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <variant>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/bounded_queue.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/engine.h"
#include "lmtp/engine/engine_instance.h"
#include "lmtp/engine/refusals.h"
#include "lmtp/request/request.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::engine {

struct CancelCommand {
  StreamKey key;
  Error reason = {ErrorCode::kCancelled, "cancelled"};  // that ends its stream
};
struct StopCommand {
  runtime::Clock::time_point deadline;
};

// What the controller of a stream wants before its next token.
struct ControllerAnswer {
  StreamKey key;
  aici::Sequence sequence = 0;
  aici::Advance advance;
};

using EngineCommand =
    std::variant<Request, CancelCommand, StopCommand, Backtrack, ControllerAnswer>;

struct EngineInstance::Inbox {
  Inbox(std::size_t capacity, const EngineCounters& counters) : queue(capacity) {
    static_cast<EngineCounters&>(stats) = counters;
  }
  BoundedQueue<EngineCommand> queue;
  std::atomic<int> expected_wait_ms = 0;  // EngineInstance::expected_wait_ms

  mutable std::mutex stats_mutex;
  EngineStats stats;
};

}  // namespace lmtp::engine

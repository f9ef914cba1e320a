// The commands that reach an engine's thread, in one queue.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <variant>

#include "lmtp/base/bounded_queue.h"
#include "lmtp/base/result.h"
#include "lmtp/engine/engine_instance.h"
#include "lmtp/request/request.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::engine {

struct CancelCommand {
  StreamKey key;
  Error reason = {ErrorCode::kCancelled, "cancelled"};  // what its stream is told
};
struct LoadProgressCommand {
  int percent = 0;
};
struct LoadedCommand {
  Result<std::unique_ptr<scheduler::ModelAgent>> agent;
};
struct StopCommand {
  std::chrono::steady_clock::time_point deadline;
};

using EngineCommand =
    std::variant<Request, CancelCommand, LoadProgressCommand, LoadedCommand, StopCommand>;

struct EngineInstance::Inbox {
  explicit Inbox(std::size_t capacity) : queue(capacity) {}
  BoundedQueue<EngineCommand> queue;
  std::atomic<bool> stopped = false;  // set before the queue is closed
};

inline Error shutting_down() { return {ErrorCode::kUnavailable, "the server is shutting down"}; }

// Why one request more is not taken.
inline Error overloaded(std::size_t max_requests) {
  return {ErrorCode::kOverloaded,
          "overloaded: " + std::to_string(max_requests) +
              " requests are in flight (--max-concurrent-requests); retry later"};
}

}  // namespace lmtp::engine

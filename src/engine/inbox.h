// The commands that reach an engine's thread, in one queue.
#pragma once

#include <chrono>
#include <memory>
#include <variant>

#include "lmtp/agent/model_agent.h"
#include "lmtp/base/bounded_queue.h"
#include "lmtp/base/result.h"
#include "lmtp/engine/engine_instance.h"
#include "lmtp/engine/request.h"

namespace lmtp::engine {

struct CancelCommand {
  StreamKey key;
};
struct LoadProgressCommand {
  int percent = 0;
};
struct LoadedCommand {
  Result<std::unique_ptr<agent::ModelAgent>> agent;
};
struct StopCommand {
  std::chrono::steady_clock::time_point deadline;
};

using EngineCommand =
    std::variant<Request, CancelCommand, LoadProgressCommand, LoadedCommand, StopCommand>;

struct EngineInstance::Inbox {
  explicit Inbox(std::size_t capacity) : queue(capacity) {}
  BoundedQueue<EngineCommand> queue;
};

}  // namespace lmtp::engine

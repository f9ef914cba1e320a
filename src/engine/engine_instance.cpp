#include "lmtp/engine/engine_instance.h"

#include <utility>

#include "inbox.h"

namespace lmtp::engine {

Result<void> EngineInstance::submit(Request&& request) const {
  EngineCommand command(std::in_place_type<Request>, std::move(request));
  if (inbox_->queue.try_push(std::move(command))) return {};
  request = std::move(std::get<Request>(command));
  if (stats().stopped) return shutting_down();
  return overloaded(inbox_->queue.capacity());
}

bool EngineInstance::submit_all(std::vector<Request> requests) const {
  std::vector<EngineCommand> commands;
  commands.reserve(requests.size());
  for (Request& request : requests) commands.emplace_back(std::move(request));
  return inbox_->queue.push_control_all(std::move(commands));
}

bool EngineInstance::cancel(StreamKey key) const {
  return inbox_->queue.push_control(CancelCommand{key});
}

EngineStats EngineInstance::stats() const {
  const std::lock_guard lock(inbox_->stats_mutex);
  return inbox_->stats;
}

}  // namespace lmtp::engine

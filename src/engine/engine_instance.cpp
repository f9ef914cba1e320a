#include "lmtp/engine/engine_instance.h"

#include <cstddef>
#include <new>
#include <utility>
#include <variant>

#include "inbox.h"

namespace lmtp::engine {

Result<void> EngineInstance::submit(Request&& request) const {
  EngineCommand command(std::in_place_type<Request>, std::move(request));
  if (inbox_->queue.try_push(std::move(command))) return {};
  request = std::move(std::get<Request>(command));
  return refusal();
}

Error EngineInstance::refusal() const {
  if (stats().stopped) return shutting_down();
  return overloaded(inbox_->queue.capacity(), expected_wait_ms());
}

Result<void> EngineInstance::submit_forks(std::vector<Request>& forks) const {
  std::vector<EngineCommand> commands;
  commands.reserve(forks.size());
  for (Request& fork : forks) commands.emplace_back(std::move(fork));
  if (inbox_->queue.try_push_all(std::move(commands))) return {};
  // They were not moved from. NOLINTNEXTLINE(bugprone-use-after-move)
  for (std::size_t i = 0; i < commands.size(); ++i) {
    forks[i] = std::move(std::get<Request>(commands[i]));
  }
  return refusal();
}

Result<void> EngineInstance::backtrack(Backtrack command) const {
  if (inbox_->queue.try_push(EngineCommand(std::move(command)))) return {};
  return refusal();
}

bool EngineInstance::submit_all(std::vector<Request>& requests) const {
  std::vector<EngineCommand> commands;
  try {
    commands.reserve(requests.size());
    for (Request& request : requests) commands.emplace_back(std::move(request));
    if (inbox_->queue.push_control_all(std::move(commands))) {
      requests.clear();
      return true;
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): nothing has been taken
  }
  // Where they are not taken, they are not moved from. NOLINTNEXTLINE(bugprone-use-after-move)
  for (std::size_t i = 0; i < commands.size(); ++i) {
    requests[i] = std::move(std::get<Request>(commands[i]));
  }
  return false;
}

bool EngineInstance::cancel(StreamKey key) const {
  return inbox_->queue.push_control(CancelCommand{key});
}

int EngineInstance::expected_wait_ms() const { return inbox_->expected_wait_ms; }

EngineStats EngineInstance::stats() const {
  const std::lock_guard lock(inbox_->stats_mutex);
  return inbox_->stats;
}

}  // namespace lmtp::engine

#include "lmtp/engine/engine_instance.h"

#include <utility>

#include "inbox.h"

namespace lmtp::engine {

Result<void> EngineInstance::submit(Request request) const {
  EngineCommand command(std::in_place_type<Request>, std::move(request));
  if (inbox_->queue.try_push(std::move(command))) return {};
  if (inbox_->stopped) return shutting_down();
  return overloaded(inbox_->queue.capacity());
}

void EngineInstance::cancel(StreamKey key) const { inbox_->queue.push_control(CancelCommand{key}); }

}  // namespace lmtp::engine

#include "lmtp/engine/engine_instance.h"

#include <string>
#include <utility>

#include "inbox.h"

namespace lmtp::engine {

Result<void> EngineInstance::submit(Request request) const {
  EngineCommand command(std::in_place_type<Request>, std::move(request));
  if (inbox_->queue.try_push(std::move(command))) return {};
  return Error{"overloaded: the queue of " + std::to_string(inbox_->queue.capacity()) +
               " requests is full, or the server is shutting down; retry later"};
}

void EngineInstance::cancel(StreamKey key) const { inbox_->queue.push_control(CancelCommand{key}); }

}  // namespace lmtp::engine

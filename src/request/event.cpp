#include "lmtp/request/event.h"

#include <utility>

namespace lmtp {

bool is_last(const StreamEvent& event) {
  if (const auto* token = std::get_if<TokenEvent>(&event)) {
    return token->finish_reason != FinishReason::kNone;
  }
  return std::holds_alternative<StreamError>(event) || std::holds_alternative<ModelReady>(event);
}

void deliver_now(EventSink& sink, std::span<StreamEvent> events) {
  const std::shared_ptr<Waker> waker = sink.waker();
  sink.deliver(events);
  if (waker != nullptr) waker->wake();
}

void deliver_now(EventSink& sink, StreamEvent event) { deliver_now(sink, std::span(&event, 1)); }

}  // namespace lmtp

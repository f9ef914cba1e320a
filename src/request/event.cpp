#include "lmtp/request/event.h"

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

namespace lmtp {

bool is_last(const StreamEvent& event) {
  if (const auto* token = std::get_if<TokenEvent>(&event)) {
    return token->finish_reason != FinishReason::kNone;
  }
  return std::holds_alternative<StreamError>(event) || std::holds_alternative<ModelReady>(event);
}

int num_ended(std::span<const StreamEvent> events) {
  return static_cast<int>(std::ranges::count_if(events, is_last));
}

int num_forked(std::span<const StreamEvent> events) {
  return static_cast<int>(std::ranges::count_if(events, [](const StreamEvent& event) {
    return std::holds_alternative<SampleForked>(event);
  }));
}

// One allocation, before anything is moved.
void take_events(std::span<StreamEvent> events, std::vector<StreamEvent>& to) {
  static_assert(std::is_nothrow_move_constructible_v<StreamEvent>);
  to.insert(to.end(), std::make_move_iterator(events.begin()),
            std::make_move_iterator(events.end()));
}

void deliver_now(EventSink& sink, std::span<StreamEvent> events) {
  const std::shared_ptr<Waker> waker = sink.waker();
  sink.deliver(events);
  if (waker != nullptr) waker->wake();
}

void deliver_now(EventSink& sink, StreamEvent event) { deliver_now(sink, std::span(&event, 1)); }

}  // namespace lmtp

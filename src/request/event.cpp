#include "lmtp/request/event.h"

namespace lmtp {

bool is_last(const StreamEvent& event) {
  if (const auto* token = std::get_if<TokenEvent>(&event)) {
    return token->finish_reason != FinishReason::kNone;
  }
  return std::holds_alternative<StreamError>(event) || std::holds_alternative<ModelReady>(event);
}

}  // namespace lmtp

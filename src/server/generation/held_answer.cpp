#include "held_answer.h"

#include <cstdint>

#include "lmtp/base/text.h"

namespace lmtp::server {
namespace {

// By so much at a time what is held is counted towards what all connections hold.
constexpr std::size_t kHeldBytesStep = std::size_t{64} << 10;

}  // namespace

Result<void> HeldAnswer::check_length() const {
  if (num_bytes_ <= max_bytes_) return {};
  return Error{ErrorCode::kInvalid, "stream: is false, and the answer is longer than " +
                                        size_text(static_cast<std::int64_t>(max_bytes_)) +
                                        "; stream it, or ask for less"};
}

Result<void> HeldAnswer::count() {
  if (auto within = check_length(); !within) return within;
  if (num_bytes_ < held_.bytes() + kHeldBytesStep) return {};
  if (held_.set(num_bytes_)) return {};
  return Error{ErrorCode::kOverloaded,
               "overloaded: answers that are not streamed take too much memory; retry later, or "
               "stream"};
}

}  // namespace lmtp::server

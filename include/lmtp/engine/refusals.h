// The errors by which requests are refused, as clients see them.
#pragma once

#include <cstddef>
#include <string>

#include "lmtp/base/result.h"
#include "lmtp/request/request.h"

namespace lmtp::engine {

inline Error shutting_down() { return {ErrorCode::kStopping, "the server is shutting down"}; }

inline Error lost_tokens() {
  return {ErrorCode::kInternal, "internal: tokens of this stream were lost"};
}

// Why one request more is not taken. wait_ms: Error's.
inline Error overloaded(std::size_t max_requests, int wait_ms = 0) {
  return {ErrorCode::kOverloaded,
          "overloaded: " + std::to_string(max_requests) +
              " requests are in flight (--max-concurrent-requests); retry later",
          wait_ms};
}

// The line of the log for a request that has ended before an engine had it. Any
// thread.
void log_refused(const Request& request, ErrorCode cause) noexcept;

}  // namespace lmtp::engine

// Requests that ended before an engine had them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lmtp/base/result.h"
#include "lmtp/engine/engine_metrics.h"
#include "lmtp/engine/refusals.h"
#include "lmtp/request/request.h"

namespace lmtp::registry {

// By cause, each request once. Owner: the Registry. Any thread.
class RefusalCounts {
 public:
  // A message that was not made into a Request.
  void add(ErrorCode cause) {
    counts_[static_cast<std::size_t>(cause)].fetch_add(1, std::memory_order_relaxed);
  }
  // It is a line of the log too.
  void add(const Request& request, ErrorCode cause) noexcept {
    add(cause);
    engine::log_refused(request, cause);
  }
  std::uint64_t count(ErrorCode cause) const {
    return counts_[static_cast<std::size_t>(cause)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, engine::kNumErrorCodes> counts_{};
};

}  // namespace lmtp::registry

// Requests that ended before an engine had them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lmtp/base/result.h"
#include "lmtp/engine/engine_metrics.h"

namespace lmtp::registry {

// By cause, each request once. Owner: the Registry. Any thread.
class RefusalCounts {
 public:
  void add(ErrorCode cause, std::size_t count = 1) {
    counts_[static_cast<std::size_t>(cause)].fetch_add(count, std::memory_order_relaxed);
  }
  std::uint64_t count(ErrorCode cause) const {
    return counts_[static_cast<std::size_t>(cause)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, engine::kNumErrorCodes> counts_{};
};

}  // namespace lmtp::registry

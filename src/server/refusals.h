// Requests that were refused before an engine had them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lmtp/base/result.h"
#include "lmtp/engine/engine_metrics.h"

namespace lmtp::server {

// By cause; whoever answers a request with a refusal adds it. Owner: the server's context. Any
// thread.
class Refusals {
 public:
  void add(ErrorCode cause) {
    counts_[static_cast<std::size_t>(cause)].fetch_add(1, std::memory_order_relaxed);
  }
  std::uint64_t count(ErrorCode cause) const {
    return counts_[static_cast<std::size_t>(cause)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, engine::kNumErrorCodes> counts_{};
};

}  // namespace lmtp::server

// Memory for weights, which are read at every step.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/memory.h"

namespace lmtp::model {

// Allocates from large pieces of memory, in huge pages if possible. An allocation keeps its piece
// alive and may outlive the arena. Owner: the host's store; one thread.
class WeightArena {
 public:
  // 64-byte aligned; contents undefined. Throws std::bad_alloc.
  std::shared_ptr<std::byte> allocate(std::size_t num_bytes);

 private:
  kernels::Memory piece_;  // allocations come from this one
  std::size_t used_bytes_ = 0;
};

}  // namespace lmtp::model

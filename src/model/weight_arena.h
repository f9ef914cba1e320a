// Memory for weights that are streamed through at every step.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/memory.h"

namespace lmtp::model {

// Gives out large pieces of memory part by part; they come in huge pages where there are any. A
// part holds its piece alive, so the arena may go before it. Owner: the host's store; one thread.
class WeightArena {
 public:
  // So many bytes, 64-byte aligned, contents undefined. Throws std::bad_alloc.
  std::shared_ptr<std::byte> allocate(std::size_t num_bytes);

 private:
  kernels::Memory piece_;  // what is given out now
  std::size_t used_bytes_ = 0;
};

}  // namespace lmtp::model

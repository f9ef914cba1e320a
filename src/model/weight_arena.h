// Memory for weights that are streamed through at every step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "kernels/memory.h"

namespace lmtp::model {

// Gives tensors out of large pieces of memory, which come in huge pages where there are any. A
// tensor holds its piece alive, so the arena may go before it. Owner: WeightLoader; one thread.
class WeightArena {
 public:
  // 64-byte aligned, contents undefined. Throws std::bad_alloc.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType type);

 private:
  kernels::Memory piece_;  // what is given out now
  std::size_t used_bytes_ = 0;
};

}  // namespace lmtp::model

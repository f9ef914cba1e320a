// Memory for weights that are streamed through at every step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace lmtp::model {

// Gives tensors out of large pieces of memory in huge pages, where there are any: through small
// ones a good part of a step goes into looking up addresses. A tensor holds its piece alive, so the
// arena may go before it. Owner: WeightLoader; one thread.
class WeightArena {
 public:
  // 64-byte aligned, contents undefined. Throws std::bad_alloc.
  at::Tensor allocate(at::IntArrayRef shape, at::ScalarType type);

 private:
  std::shared_ptr<std::byte> piece_;  // what is given out now
  std::size_t piece_bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace lmtp::model

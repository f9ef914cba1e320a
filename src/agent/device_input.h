// A step's arrays on their way to a device: packed into one pinned buffer, sent by one copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/memory.h"
#include "kernels/stream.h"
#include "lmtp/model/model_input.h"

namespace lmtp::agent {

// Owner: an agent; one thread.
class DeviceInput {
 public:
  // `stream` must outlive this.
  explicit DeviceInput(kernels::Stream& stream) : stream_(stream) {}

  // Puts the copy into the stream. Arrays of `input` lie where they lay for any input with as many
  // tokens, sequences and logit rows, as long as num_moves() stays. The arrays are valid until the
  // next call. REQUIRES: the copy before this one has been waited for.
  model::InputArrays upload(const model::ModelInput& input);

  // How often the memory on the device has moved.
  std::int64_t num_moves() const { return num_moves_; }

 private:
  void reserve(std::size_t num_bytes);

  kernels::Stream& stream_;
  kernels::Memory pinned_;
  kernels::Memory device_;
  std::int64_t num_moves_ = 0;
};

}  // namespace lmtp::agent

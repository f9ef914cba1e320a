// A step's arrays on their way to a device: packed into one pinned buffer, sent by one copy.
#pragma once

#include <cstdint>

#include "kernels/stream.h"
#include "lmtp/model/model_input.h"
#include "staged_memory.h"

namespace lmtp::agent {

// Owner: an agent; one thread.
class DeviceInput {
 public:
  // `stream` must outlive this.
  explicit DeviceInput(kernels::Stream& stream) : memory_(stream) {}

  // Puts the copy into the stream. Arrays of `input` lie where they lay for any input with as many
  // tokens, sequences and logit rows, as long as num_moves() stays. The arrays are valid until the
  // next call. REQUIRES: the copy before this one has been waited for.
  model::InputArrays upload(const model::ModelInput& input);

  // How often the memory on the device has moved.
  std::int64_t num_moves() const { return memory_.num_moves(); }

 private:
  StagedMemory memory_;
};

}  // namespace lmtp::agent

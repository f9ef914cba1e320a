// A step's arrays on their way to a device: packed into one pinned buffer, sent by one copy.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sample.h"
#include "kernels/stream.h"
#include "lmtp/model/model_input.h"
#include "staged_memory.h"

namespace lmtp::agent {

// Tokens that the host does not know yet.
struct DrawnTokens {
  std::vector<std::int32_t> rows;                  // which of the records each one is
  const kernels::SampleRecord* records = nullptr;  // on the device
};

// Owner: an agent; one thread.
class DeviceInput {
 public:
  // `stream` must outlive this.
  explicit DeviceInput(kernels::Stream& stream) : stream_(stream), memory_(stream) {}

  // Puts the copy into the stream. Arrays of `input` lie where they lay for any input with as many
  // tokens, sequences and logit rows, as long as num_moves() stays. The arrays are valid until the
  // next call. The first drawn.rows.size() ids are taken on the device from what the step before
  // draws. REQUIRES: the step before the last one is over.
  model::InputArrays upload(const model::ModelInput& input, const DrawnTokens& drawn);

  // How often the memory on the device has moved.
  std::int64_t num_moves() const { return memory_.num_moves(); }

 private:
  kernels::Stream& stream_;
  StagedMemory memory_;
};

}  // namespace lmtp::agent

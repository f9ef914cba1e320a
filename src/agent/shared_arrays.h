// SharedArrays: what rows of a step share with those of others, biases and masks, where the ops
// run. LMQL sends the same mask of thousands of entries with every chunk, and equal ones are one
// object (protocol::BiasCache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/memory.h"
#include "kernels/stream.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::agent {

// The arrays of one immutable object: ids and values of a bias, the words of a mask, or ids.
struct SharedArray {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> first;
  std::span<const std::byte> second;  // of a bias alone

  std::size_t num_bytes() const { return first.size() + second.size(); }
};
// Without what is outside of the vocabulary.
SharedArray shared_array(const std::shared_ptr<const LogitBias>& bias, int vocab_size);
SharedArray shared_array(const std::shared_ptr<const TokenMask>& mask, int vocab_size);
SharedArray shared_array(const std::shared_ptr<const std::vector<TokenId>>& ids);

// A cache on a device, of which the objects live as long as their copies there; on the host the
// arrays themselves. Owner: StepSampling; one thread.
class SharedArrays {
 public:
  // Allocates num_bytes() on a device. `stream` must outlive this. Throws DeviceError.
  SharedArrays(kernels::Stream& stream, int vocab_size, int rows_max);

  // Of rows_max rows with biases, masks and listed ids that are all different, and biases and masks
  // that have an entry for every token: the worst that clients can send must not make a step fail.
  static std::int64_t num_bytes(int vocab_size, int rows_max);

  // Where both parts are.
  struct Location {
    const std::byte* first = nullptr;
    const std::byte* second = nullptr;
  };

  // Uploads those that are not on the device yet. True: locations of before are not valid any more.
  // REQUIRES: a bias, a mask and kSampleTopMax ids for each of rows_max rows at most.
  bool upload(const std::vector<SharedArray>& arrays);
  // REQUIRES: the last upload() was given this array, or it is empty.
  Location at(const SharedArray& array) const;

 private:
  struct Entry {
    std::shared_ptr<const void> owner;  // its address is the key
    std::size_t offset = 0;
  };

  void upload_missing(const std::vector<SharedArray>& arrays);
  bool holds(const SharedArray& array) const { return entries_.contains(array.owner.get()); }

  kernels::Stream& stream_;
  kernels::Memory memory_;  // filled from its front; when it is full, all are dropped
  std::size_t used_bytes_ = 0;
  kernels::Memory pinned_;  // staging for uploads; holds at least one array
  std::unordered_map<const void*, Entry> entries_;
};

}  // namespace lmtp::agent

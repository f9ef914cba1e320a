// How fast a device reads its memory.
#pragma once

#include <cstddef>

#include "kernels/stream.h"

namespace lmtp::bench {

// The fastest shape depends on the device.
struct ReadShape {
  int blocks_each = 4;  // of a multiprocessor
  int threads = 512;    // of a block
};

// Puts a launch into the stream that reads all of `data` once and keeps nothing of it. REQUIRES:
// `data` lies on the stream's device, 16-byte aligned; num_bytes is a multiple of 16.
void read_on_device(const kernels::Stream& stream, const void* data, std::size_t num_bytes,
                    const ReadShape& shape);

}  // namespace lmtp::bench

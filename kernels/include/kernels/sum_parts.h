// Sums on devices of what ranks have computed of a matrix, each its part of every element. Not in
// the table of ops (backend.h): on a CPU ranks add in each other's memory.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels::cuda {

struct SumPartsArgs {
  Matrix<const float> first;     // [m, n] f32: part 0
  std::int64_t part_stride = 0;  // floats from a part to the next; their rows lie as the first's
  int num_parts = 1;
  Matrix<float> y;  // [m, n] f32; may be one of the parts, and overlaps none else
};

// y = ((part 0 + part 1) + part 2) + ..., in this order, with the bits of a CPU; of one part a
// copy.
// REQUIRES: the stream is a device's; num_parts >= 1. Throws DeviceError.
void sum_parts(Stream& stream, const SumPartsArgs& args);

}  // namespace lmtp::kernels::cuda

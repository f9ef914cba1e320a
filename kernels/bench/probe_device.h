// What a device does that decides how kernels are best written, measured without any of our ops:
// launches in a graph, a barrier of the grid, latencies, and whether wgmma sums as mma.sync does.
#pragma once

#include <functional>

#include "kernels/stream.h"

namespace lmtp::bench {

using ProbeFigure = std::function<void(const char* what, double value, const char* unit)>;

// Calls `say` with each figure as it comes. What the device cannot do is left out. Throws
// std::runtime_error where a call of the CUDA runtime fails.
void probe_device(const kernels::Stream& stream, const ProbeFigure& say);

// The same of a chain of launches, each of which waits for the one before: what their reading of
// weights takes, and whether reading ahead gains anything.
void probe_chain(kernels::Stream& stream, const ProbeFigure& say);

// By the same inputs to the instruction mma.sync and to wgmma, both in bf16 and f16, chains of
// products with far exponents: how many of the sums differ in bits, and out of how many. Negative:
// the device has no wgmma. Throws std::runtime_error. For probe_device.
struct WgmmaBits {
  int differing = -1;
  int sums = 0;
};
WgmmaBits compare_wgmma(const kernels::Stream& stream);

}  // namespace lmtp::bench

// The ops of a device, on the emulation of one; for tests that link lmtp_cuda_emulated.
#pragma once

#include "kernels/backend.h"

namespace lmtp::testing {

const kernels::Backend& emulated_backend();

// Graphs launched since the last call.
int take_num_graph_launches();

// cuda_emulation::set_order: in which order a kernel's blocks and threads run.
void set_emulation_order(unsigned seed);

}  // namespace lmtp::testing

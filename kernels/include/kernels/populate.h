// Pages of memory before they are written.
#pragma once

#include <cstddef>

namespace lmtp::kernels {

// Takes the pages of [data, data + num_bytes) from the system as writing there would, huge ones
// whole, without changing what they hold: beside threads that write. Those that are there already
// cost little. False where the system has no such call (Linux before 5.14) or no page. Any thread.
// REQUIRES: memory of the host.
bool populate(void* data, std::size_t num_bytes);

}  // namespace lmtp::kernels

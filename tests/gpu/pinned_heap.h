// A heap that a device reads and writes as well, so that tests may hand the elements of a vector
// to a kernel.
#pragma once

namespace lmtp::testing {

// From here on operator new gives pinned memory of the host. It is gone when the process is.
// REQUIRES: there is a device; called once, while no other thread runs.
void use_pinned_heap();

}  // namespace lmtp::testing

// Counts allocations. A test that includes this has counted_allocations.cpp among its SOURCES,
// which replaces operator new in the whole program.
#pragma once

#include <cstdint>

namespace lmtp::testing {

// By this thread, so far.
extern constinit thread_local std::int64_t num_allocations;

}  // namespace lmtp::testing

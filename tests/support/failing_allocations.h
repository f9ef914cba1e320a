// Memory that runs out, one allocation after another. A test that includes this has
// failing_allocations.cpp among its SOURCES, which replaces operator new in the whole program.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "recording_sink.h"

namespace lmtp::testing {

// Of this thread; the last of them fails. 0: none does.
extern constinit thread_local int allocations_left;

// Its posting takes memory, as a socket's does; keeping what came is the test's own affair.
class PostingSink : public RecordingSink {
 public:
  void deliver(std::vector<StreamEvent> events) override {
    const auto posted = std::make_unique<int>(1);
    const int left = std::exchange(allocations_left, 0);
    RecordingSink::deliver(std::move(events));
    allocations_left = left;
  }
};

}  // namespace lmtp::testing

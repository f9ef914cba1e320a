// Makes allocations fail. A test that includes this has
// failing_allocations.cpp among its SOURCES, which replaces operator new in the whole program.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "recording_sink.h"

namespace lmtp::testing {

// This thread's allocation number n from now on fails. 0: none does.
extern constinit thread_local int allocations_left;

// Its posting allocates, as a socket's does, and may fail; recording the events may not.
class PostingSink : public RecordingSink {
 public:
  void deliver(std::span<StreamEvent> events) override {
    const auto posted = std::make_unique<int>(1);
    const int left = std::exchange(allocations_left, 0);
    RecordingSink::deliver(events);
    allocations_left = left;
  }
};

}  // namespace lmtp::testing

// Asynchronous copies, and the barriers in shared memory that count some: between emulator.cpp and
// bulk_copies.cpp.
#pragma once

#include <cstring>
#include <string>

namespace lmtp::cuda_emulation {

// One line on stderr, and the end.
[[noreturn]] void fail(const std::string& what);
// The running thread and its block.
std::string where();

// The next thread's turn.
void yield();
// Whether an asynchronous copy happens at once; otherwise when it is waited for.
bool copies_at_once();

// What a thread copies by itself, 16 bytes.
struct Copy {
  void* to;
  const void* from;
  bool wanted;

  void carry_out() const {
    if (wanted) {
      std::memcpy(to, from, 16);
    } else {
      std::memset(to, 0, 16);
    }
  }
};

// Before a cluster begins.
void forget_barriers();
bool has_bulk_copies();

}  // namespace lmtp::cuda_emulation

// Barriers in shared memory, and the copies that they count: between emulator.cpp and
// bulk_copies.cpp.
#pragma once

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

// Before a cluster begins.
void forget_barriers();
bool has_bulk_copies();

}  // namespace lmtp::cuda_emulation

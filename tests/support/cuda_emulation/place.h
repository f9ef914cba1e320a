// What a fiber waits for, where it is, and switching to another one.
#pragma once

namespace lmtp::cuda_emulation {

enum class State : unsigned char {
  kReady,
  kAtBarrier,
  kAtGroupBarrier,
  kAtClusterBarrier,
  kInWarp,
  kDone
};

// A fiber's saved context. Uses the compiler's own setjmp, since the C library's refuses to jump to
// another stack, and swapcontext makes a system call.
struct Place {
  void* words[5];
};

[[gnu::noinline, gnu::no_sanitize_address]] inline void jump(Place& to) {
  __builtin_longjmp(to.words, 1);
}

// Switches to `to`; returns when another fiber switches to `from`.
[[gnu::noinline]] inline void switch_places(Place& from, Place& to) {
  if (__builtin_setjmp(from.words) == 0) jump(to);
}

}  // namespace lmtp::cuda_emulation

// For LMTP_STATIC (cmake/LmtpStatic.cmake): what libstdc++'s std::random_device calls, and glibc
// has since 2.36 alone. With it here the programs run where glibc is 2.34.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) std::uint32_t arc4random() noexcept {
  std::uint32_t bits = 0;
  if (getentropy(&bits, sizeof bits) != 0) std::abort();  // a kernel without getrandom
  return bits;
}

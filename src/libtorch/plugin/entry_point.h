// How the program finds the Library in the shared library.
#pragma once

#include "lmtp/libtorch/library.h"

namespace lmtp::libtorch {

inline constexpr const char* kLibraryPath = "lib/lmtp/liblmtp_torch.so";  // beside bin/
inline constexpr const char* kEntryPoint = "lmtp_libtorch";

}  // namespace lmtp::libtorch

extern "C" [[gnu::visibility("default")]] const lmtp::libtorch::Library* lmtp_libtorch();

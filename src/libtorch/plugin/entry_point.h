// The plugin's path and entry points, shared by the plugin and the program that loads it.
#pragma once

#include <string_view>

#include "lmtp/base/version.h"
#include "lmtp/libtorch/library.h"

namespace lmtp::libtorch {

inline constexpr const char* kLibraryPath = "lib/lmtp/liblmtp_torch.so";  // beside bin/
inline constexpr const char* kEntryPoint = "lmtp_libtorch";
inline constexpr const char* kBuildEntryPoint = "lmtp_libtorch_build";

// To be increased with each change of library.h, or of its includes, within one version.
inline constexpr int kAbi = 3;

// Identifies the build of the plugin. The layout must never change: programs of other builds read
// it.
struct Build {
  char version[24];  // kVersion, ended by 0
  int abi;
};

constexpr Build this_build() {
  static_assert(kVersion.size() < sizeof(Build::version));
  Build build{};
  kVersion.copy(build.version, kVersion.size());
  build.abi = kAbi;
  return build;
}

}  // namespace lmtp::libtorch

extern "C" [[gnu::visibility("default")]] const lmtp::libtorch::Build* lmtp_libtorch_build();
extern "C" [[gnu::visibility("default")]] const lmtp::libtorch::Library* lmtp_libtorch();

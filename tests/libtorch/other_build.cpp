// What a server finds that was started before another build was installed.
#include <cstdlib>

#include "plugin/entry_point.h"

const lmtp::libtorch::Build* lmtp_libtorch_build() {
  static constexpr lmtp::libtorch::Build kBuild = {"0.0.0", 7};
  return &kBuild;
}

const lmtp::libtorch::Library* lmtp_libtorch() { std::abort(); }

// The repository's folder, for tests that read its files.
#pragma once

#include <cstdlib>
#include <string>

namespace lmtp::testing {

// The environment variable LMTP_SOURCE_DIR, for programs copied to another machine; else the folder
// of the build.
inline std::string source_dir() {
  const char* carried = std::getenv("LMTP_SOURCE_DIR");
  return carried != nullptr ? carried : LMTP_SOURCE_DIR;
}

}  // namespace lmtp::testing

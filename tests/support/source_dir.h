// Where the files of the repository lie that a test reads.
#pragma once

#include <cstdlib>
#include <string>

namespace lmtp::testing {

// The environment's LMTP_SOURCE_DIR, for programs that were carried to another machine; else where
// they were built.
inline std::string source_dir() {
  const char* carried = std::getenv("LMTP_SOURCE_DIR");
  return carried != nullptr ? carried : LMTP_SOURCE_DIR;
}

}  // namespace lmtp::testing

// The repository's folder, for tests that read its files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lmtp::testing {

// The environment variable LMTP_SOURCE_DIR, which ctest sets and programs copied to another machine
// need; else what a program in build/PRESET/tests/ lies below. No macro has it: a compiler cache
// would miss in every other clone.
inline std::string source_dir() {
  if (const char* carried = std::getenv("LMTP_SOURCE_DIR")) return carried;
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path().parent_path().parent_path().string();
}

// The folder of recorded models and answers, with a slash at its end.
inline std::string goldens() { return source_dir() + "/tests/goldens/"; }

}  // namespace lmtp::testing

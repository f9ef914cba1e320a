// Checks of what options are given, for CLI::Option::check: empty, or what is wrong.
#pragma once

#include <string>

namespace lmtp::tools {

// For keys: a variable that was not set must not turn them off.
inline std::string not_empty(const std::string& value) {
  return value.empty() ? "it is empty; give a value, or leave it out" : "";
}

}  // namespace lmtp::tools

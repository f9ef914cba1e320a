// Turns exceptions into Errors.
#pragma once

#include <exception>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp {

// The Error of an exception. Without memory for its text it has one that needs none.
inline Error error_of(ErrorCode code, const std::string& prefix, const char* what) noexcept {
  try {
    return {code, prefix + what};
  } catch (...) {
    return {ErrorCode::kUnavailable, "out of memory"};  // short enough for the string itself
  }
}

// Returns call(); an exception that it throws becomes an Error, its message behind `prefix`.
// REQUIRES: `call` returns a Result.
template <typename Call>
auto guarded(const Call& call, const std::string& prefix = {}) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& e) {
    return error_of(exception_code(e), prefix, e.what());
  } catch (...) {
    return error_of(ErrorCode::kInternal, prefix, "an exception of unknown type");
  }
}

// Calls it, and once more where it throws: mostly there was no memory. Whether it has returned.
// REQUIRES: where it throws, it may be called again.
template <typename Call>
bool guarded_twice(const Call& call) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      call();
      return true;
    } catch (...) {
      continue;
    }
  }
  return false;
}

}  // namespace lmtp

// Turns exceptions into Errors.
#pragma once

#include <exception>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp {

// Returns call(); an exception that it throws becomes an Error, its message behind `prefix`.
// REQUIRES: `call` returns a Result.
template <typename Call>
auto guarded(const Call& call, const std::string& prefix = {}) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& e) {
    return Error{exception_code(e), prefix + e.what()};
  } catch (...) {
    return Error{ErrorCode::kInternal, prefix + "an exception of unknown type"};
  }
}

}  // namespace lmtp

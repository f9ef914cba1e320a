// Where exceptions end.
#pragma once

#include <exception>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp {

// What `call` gives; what it throws is its error, behind `prefix`. REQUIRES: it returns a Result.
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

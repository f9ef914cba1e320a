#include "lmtp/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace lmtp::internal {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s\n", file, line, condition, values.c_str());
  std::abort();
}

}  // namespace lmtp::internal

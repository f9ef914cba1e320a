// Where the library is loaded from: apart, so that tests can name another.
#pragma once

#include <string>

#include "lmtp/libtorch/library.h"

namespace lmtp::libtorch {

Result<const Library*> load_from(const std::string& path);

}  // namespace lmtp::libtorch

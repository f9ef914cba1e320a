// Loads the plugin from a given path, for tests.
#pragma once

#include <string>

#include "lmtp/libtorch/library.h"

namespace lmtp::libtorch {

Result<const Library*> load_from(const std::string& path);

}  // namespace lmtp::libtorch

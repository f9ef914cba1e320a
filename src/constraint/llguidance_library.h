// llguidance, a shared library out of a Python package, loaded when the first grammar comes.
#pragma once

#include <string>

#include "llguidance_api.h"
#include "lmtp/base/result.h"

namespace lmtp::constraint {

// Loads it if it is not loaded yet. The error says why it cannot be loaded, and what to do. Any
// thread; never unloaded.
Result<const llg::Api*> llguidance();

// Loads it from a given folder, for tests.
Result<llg::Api> load_llguidance_from(const std::string& folder);

}  // namespace lmtp::constraint

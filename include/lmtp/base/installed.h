// Other files of the installation, or of the build, that this process' program is part of.
#pragma once

#include <filesystem>

#include "lmtp/base/result.h"

namespace lmtp {

// `relative` to the folder that has bin/ and lib/lmtp/, one of which has the program: such as
// "lib/lmtp/lmtp-jinja". It need not be there. Any thread.
Result<std::filesystem::path> installed_path(const std::filesystem::path& relative);

}  // namespace lmtp

// --device: what the user may write.
#pragma once

#include <optional>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::tools {

// "cpu": none; "cuda", "cuda:N": the number of the device.
Result<std::optional<int>> parse_device(const std::string& name);

}  // namespace lmtp::tools

// --device: what the user may write.
#pragma once

#include <optional>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::catalog {

// "cpu": none; "cuda", "cuda:N": the number of the device.
Result<std::optional<int>> parse_device(const std::string& name);

}  // namespace lmtp::catalog

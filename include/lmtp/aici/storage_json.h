// The variables that a controller wrote, as AICI's clients get them.
#pragma once

#include <span>
#include <string>

#include "lmtp/aici/runtime.h"

namespace lmtp::aici {

// A JSON list of {"WriteVar": {"name", "value" (hex), "op", "when_version_is"}}; empty: of none.
std::string storage_json(std::span<const VariableWrite> writes);

}  // namespace lmtp::aici

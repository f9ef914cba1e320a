// The tools of Anthropic's API that have a type of their own and that the client runs: which
// arguments they take, models of other vendors are to be told.
#pragma once

#include <nlohmann/json.hpp>

#include "lmtp/base/json.h"

namespace lmtp::server {

// {"type": "bash_20250124", "name": "bash"} -> {"name", "description", "input_schema"}, and so
// text_editor_... and memory_..., by Anthropic's documentation of them ("Tool use"). Any other tool
// is given as it is.
OrderedJson known_client_tool(const OrderedJson& tool);

}  // namespace lmtp::server

// Asks a server about its model before it is loaded with requests.
#pragma once

#include "common/server_info.h"
#include "lmtp/base/result.h"
#include "load_options.h"

namespace lmtp::tools {

// Sends MODEL_INFO for options.model. An error if the server cannot be reached or refuses; if it
// does not answer in time, the result is empty.
Result<ServerInfo> ask_server(const LoadOptions& options);

}  // namespace lmtp::tools

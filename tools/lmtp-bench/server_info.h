// Asks a server about its model before it is loaded with requests.
#pragma once

#include <cstdint>
#include <string>

#include "common/server_info.h"
#include "lmtp/base/result.h"

namespace lmtp::tools {

// Asks with MODEL_INFO. An error where the server cannot be reached or refuses; a server that does
// not answer in time is one that says nothing.
Result<ServerInfo> ask_server(const std::string& host, std::uint16_t port,
                              const std::string& model);

}  // namespace lmtp::tools

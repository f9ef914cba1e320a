// Asks a server about its model before it is loaded with requests.
#pragma once

#include <cstdint>
#include <string>

#include "common/server_info.h"
#include "lmtp/base/result.h"

namespace lmtp::tools {

// Sends MODEL_INFO. An error if the server cannot be reached or refuses; if it does not answer in
// time, the result is empty.
Result<ServerInfo> ask_server(const std::string& host, std::uint16_t port,
                              const std::string& model);

}  // namespace lmtp::tools

// What a user types as --host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::tools {

// Takes "host", "host:port", "[::1]:port" and URLs of them ("ws://host:port/") apart; a port in it
// takes the place of `port`.
Result<void> split_host(std::string_view given, std::string& host, std::uint16_t& port);

}  // namespace lmtp::tools

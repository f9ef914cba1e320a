// Parses the value of --host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::tools {

// Splits "host", "host:port", "[::1]:port" and their URLs ("ws://host:port/"); a port in it
// replaces `port`. "unix:PATH" stays as it is.
Result<void> split_host(std::string_view given, std::string& host, std::uint16_t& port);

}  // namespace lmtp::tools

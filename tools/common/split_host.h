// Parses the value of --host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::tools {

inline constexpr std::uint16_t kHttpsPort = 443;

struct HostAndPort {
  std::string host;
  std::optional<std::uint16_t> port;
  bool is_tls = false;
};

// Splits "host", "host:port", "[::1]:port" and their URLs ("ws://host:port/", over TLS "wss://" and
// "https://"). "unix:PATH" stays as it is.
Result<HostAndPort> split_host(std::string_view given);

}  // namespace lmtp::tools

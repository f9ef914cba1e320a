#include "common/split_host.h"

#include <charconv>

#include "lmtp/base/text.h"

namespace lmtp::tools {

Result<HostAndPort> split_host(std::string_view given) {
  const Error wrong{
      ErrorCode::kInvalid,
      "--host: '" + std::string(given) +
          "' is not a host, host:port, ws://host:port/, wss://host:port/ or unix:PATH"};
  HostAndPort split;
  if (given.starts_with(kUnixScheme)) {
    if (given.size() == kUnixScheme.size()) return wrong;
    split.host = given;
    return split;
  }
  std::string_view rest = given;
  for (const std::string_view scheme : {"ws://", "http://", "wss://", "https://"}) {
    if (!rest.starts_with(scheme)) continue;
    rest.remove_prefix(scheme.size());
    split.is_tls = scheme == "wss://" || scheme == "https://";
    break;
  }
  if (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  std::string_view port_text;
  if (rest.starts_with('[')) {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return wrong;
    port_text = rest.substr(end + 1);
    rest = rest.substr(1, end - 1);
  } else if (rest.find(':') == rest.rfind(':') && rest.find(':') != std::string_view::npos) {
    port_text = rest.substr(rest.find(':'));
    rest = rest.substr(0, rest.find(':'));
  }
  if (rest.empty() || rest.find('/') != std::string_view::npos) return wrong;
  if (!port_text.empty()) {
    std::uint16_t number = 0;
    const char* end = port_text.data() + port_text.size();
    const auto parsed = std::from_chars(port_text.data() + 1, end, number);
    if (port_text[0] != ':' || parsed.ec != std::errc() || parsed.ptr != end) return wrong;
    split.port = number;
  }
  split.host = rest;
  return split;
}

}  // namespace lmtp::tools

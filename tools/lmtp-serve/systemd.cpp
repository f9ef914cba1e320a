#include "systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "lmtp/base/log.h"

namespace lmtp::tools {

void notify(const std::string& lines) {
  const char* const named = std::getenv("NOTIFY_SOCKET");
  const std::string_view path = named == nullptr ? "" : named;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() < 2 || path.size() >= sizeof(address.sun_path)) return;
  std::ranges::copy(path, address.sun_path);
  if (path.front() == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const auto* const target = reinterpret_cast<const sockaddr*>(&address);
  if (fd < 0 || sendto(fd, lines.data(), lines.size(), MSG_NOSIGNAL, target, size) < 0) {
    log::warning("NOTIFY_SOCKET cannot be written to: " + std::string(std::strerror(errno)));
  }
  if (fd >= 0) close(fd);
}

std::string extend_timeout(std::chrono::milliseconds time) {
  return "EXTEND_TIMEOUT_USEC=" +
         std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

}  // namespace lmtp::tools

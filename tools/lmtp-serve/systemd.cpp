#include "systemd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <system_error>
#include <utility>

#include "lmtp/base/log.h"

namespace lmtp::tools {
namespace {

constexpr int kFirstGivenFd = 3;
constexpr int kGivenFdsMax = 64;

// Of a variable; 0 where it is not there or no number.
std::int64_t number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  std::int64_t number = 0;
  if (text == nullptr) return 0;
  const char* const end = text + std::strlen(text);
  const auto [read, error] = std::from_chars(text, end, number);
  return error == std::errc() && read == end ? number : 0;
}

Result<GivenSocket> given_socket(int fd) {
  GivenSocket given;
  given.fd = fd;
  int listens = 0;
  int type = 0;
  socklen_t size = sizeof(listens);
  sockaddr_storage address{};
  socklen_t address_size = sizeof(address);
  char text[INET6_ADDRSTRLEN] = "";
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 1 &&
      getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_size) == 0 &&
      fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) {
    if (address.ss_family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
      given.address = inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
      given.port = ntohs(v4.sin_port);
      return given;
    }
    if (address.ss_family == AF_INET6) {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
      given.address = inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
      given.port = ntohs(v6.sin6_port);
      return given;
    }
    if (address.ss_family == AF_UNIX) {
      given.is_unix = true;
      const char* const path = reinterpret_cast<const sockaddr_un&>(address).sun_path;
      given.address = *path == '\0' ? "@" + std::string(path + 1) : path;
      return given;
    }
  }
  return Error{ErrorCode::kInvalid,
               "descriptor " + std::to_string(fd) +
                   ", which the service manager has handed over, is no listening stream socket; "
                   "the socket unit needs ListenStream= and Accept=no"};
}

}  // namespace

bool has_manager() { return std::getenv("NOTIFY_SOCKET") != nullptr; }

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

std::string reloading() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return "RELOADING=1\nMONOTONIC_USEC=" +
         std::to_string(std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000);
}

std::optional<std::chrono::microseconds> watchdog_interval() {
  const std::int64_t interval = number_of("WATCHDOG_USEC");
  const std::int64_t process = number_of("WATCHDOG_PID");
  if (interval <= 0 || (process != 0 && process != getpid())) return std::nullopt;
  return std::chrono::microseconds(interval);
}

Result<std::vector<GivenSocket>> take_given_sockets() {
  const bool are_ours = number_of("LISTEN_PID") == getpid();
  const std::int64_t num_fds = number_of("LISTEN_FDS");
  for (const char* variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(variable);
  std::vector<GivenSocket> sockets;
  if (!are_ours) return sockets;
  for (int i = 0; i < std::min<std::int64_t>(num_fds, kGivenFdsMax); ++i) {
    Result<GivenSocket> given = given_socket(kFirstGivenFd + i);
    if (!given) return given.error();
    sockets.push_back(*std::move(given));
  }
  return sockets;
}

}  // namespace lmtp::tools

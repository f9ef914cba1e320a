#include "unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lmtp::server {
namespace {

using boost::asio::local::stream_protocol;
using boost::system::error_code;

Error cannot_listen(const std::string& path, const std::string& why) {
  return Error{ErrorCode::kUnavailable, "cannot listen on unix:" + path + ": " + why};
}

// The errno of a connection to it; 0: it succeeds, or would have to wait.
int connect_error(const stream_protocol::endpoint& endpoint) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error = ::connect(fd, endpoint.data(), endpoint.size()) == 0 ? 0 : errno;
  ::close(fd);
  return error == EAGAIN ? 0 : error;  // its backlog is full, so it has a listener
}

// Removes what a server that has ended left at `path`.
Result<void> remove_stale(const stream_protocol::endpoint& endpoint) {
  const std::string path = endpoint.path();
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};  // gone by itself
  if (!S_ISSOCK(status.st_mode)) {
    return cannot_listen(path, "there is a file that is no socket; choose another path");
  }
  switch (const int error = connect_error(endpoint)) {
    case ECONNREFUSED:
      ::unlink(path.c_str());
      return {};
    case ENOENT:
      return {};
    case 0:
      return cannot_listen(path, "another program listens there; stop it or choose another path");
    default:
      return cannot_listen(path, std::string("there is a socket that cannot be tried: ") +
                                     std::strerror(error) + "; choose another path");
  }
}

}  // namespace

Result<void> UnixSocketFile::listen(stream_protocol::acceptor& acceptor, const std::string& path) {
  constexpr std::size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kPathBytesMax) {
    return cannot_listen(path, "the path is longer than " + std::to_string(kPathBytesMax) +
                                   " bytes; choose a shorter one");
  }
  const stream_protocol::endpoint endpoint(path);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  // What bind() makes has the mode that the socket has.
  if (!error && ::fchmod(acceptor.native_handle(), S_IRUSR | S_IWUSR) != 0) {
    error.assign(errno, boost::system::system_category());
  }
  if (!error) acceptor.bind(endpoint, error);
  if (error == boost::asio::error::address_in_use) {
    if (const Result<void> removed = remove_stale(endpoint); !removed) return removed;
    acceptor.bind(endpoint, error);
  }
  struct stat status {};
  if (!error && ::lstat(path.c_str(), &status) == 0) {
    path_ = path;
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }
  if (!error) acceptor.listen(stream_protocol::acceptor::max_listen_connections, error);
  if (!error) return {};
  return cannot_listen(
      path, error.message() + "; choose a path in a folder that exists and may be written to");
}

void UnixSocketFile::remove() {
  struct stat status {};
  const bool is_ours = !path_.empty() && ::lstat(path_.c_str(), &status) == 0 &&
                       status.st_dev == device_ && status.st_ino == inode_;
  if (is_ours) ::unlink(path_.c_str());
  path_.clear();  // after the close another file may get this inode number
}

}  // namespace lmtp::server

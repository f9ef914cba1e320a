// The file of a listening Unix socket.
#pragma once

#include <sys/types.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::server {

// Owner: a listener; one thread at a time.
class UnixSocketFile {
 public:
  UnixSocketFile() = default;
  ~UnixSocketFile() { remove(); }
  UnixSocketFile(const UnixSocketFile&) = delete;
  UnixSocketFile& operator=(const UnixSocketFile&) = delete;

  // Binds `acceptor` to `path` and listens. The file has mode 0600 from its first moment. That of a
  // server which has ended without removing it is replaced; where one listens, or the path is
  // something else, nothing is touched and the error says so. Once.
  Result<void> listen(boost::asio::local::stream_protocol::acceptor& acceptor,
                      const std::string& path);

  // Unless another server has taken the path since. Idempotent.
  void remove();

 private:
  std::string path_;  // empty: there is no file
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace lmtp::server

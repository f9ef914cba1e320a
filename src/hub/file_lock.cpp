#include "file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "hub_messages.h"
#include "lmtp/base/check.h"

namespace lmtp::hub {
namespace {

constexpr mode_t kLockMode = 0644;

}  // namespace

Result<bool> FileLock::try_acquire(const std::string& path) {
  LMTP_CHECK(file_ < 0, path);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLockMode);
  if (file < 0) return explain_disk("the cache cannot be locked", path, errno);
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    const int error_number = errno;
    close(file);
    if (error_number == EWOULDBLOCK || error_number == EACCES || error_number == EINTR) {
      return false;
    }
    Error error = explain_disk("the cache cannot be locked", path, error_number);
    error.message += ": HF_HUB_CACHE on a local disk would do";
    return error;
  }
  struct stat status {};
  if (fstat(file, &status) != 0 || status.st_nlink == 0) {
    // Removed between the two calls: a lock on it excludes no one.
    close(file);
    return false;
  }
  file_ = file;
  return true;
}

void FileLock::release() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

}  // namespace lmtp::hub

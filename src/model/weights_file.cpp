#include "weights_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace lmtp::model {

Result<std::unique_ptr<WeightsFile>> WeightsFile::open(const std::string& path) {
  // Opening a pipe would block until it has a writer.
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return Error{ErrorCode::kInvalid, path + ": not a file"};
  }
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return Error{errno_code(errno), path + ": " + std::strerror(errno)};
  }
  std::unique_ptr<WeightsFile> file(new WeightsFile(path, descriptor));
  if (fstat(descriptor, &file->status_) != 0 || file->size() == 0) {
    return Error{ErrorCode::kInvalid, path + ": empty"};
  }
  return file;
}

std::unique_ptr<WeightsFile> WeightsFile::from_prefix(std::string path, std::string beginning,
                                                      std::int64_t size) {
  std::unique_ptr<WeightsFile> file(new WeightsFile(std::move(path), -1));
  file->beginning_ = std::move(beginning);
  file->status_.st_size = size;
  return file;
}

WeightsFile::~WeightsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> WeightsFile::read(std::uint64_t first, std::size_t count, void* to) const {
  if (descriptor_ < 0) {
    if (first + count > beginning_.size()) {
      return Error{ErrorCode::kUnavailable, path_ + ": has not come yet"};
    }
    std::memcpy(to, beginning_.data() + first, count);
    return {};
  }
  auto* bytes = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t taken = pread(descriptor_, bytes, count, static_cast<off_t>(first));
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0) {
      return Error{ErrorCode::kUnavailable, path_ + ": cannot be read: " + std::strerror(errno)};
    }
    if (taken == 0) {
      return Error{ErrorCode::kUnavailable,
                   path_ + ": ends at byte " + std::to_string(first) + ", and had " +
                       std::to_string(size()) +
                       " when it was opened: somebody writes to it; try again when that is done"};
    }
    bytes += taken;
    first += static_cast<std::uint64_t>(taken);
    count -= static_cast<std::size_t>(taken);
  }
  return {};
}

Result<void> WeightsFile::check_unchanged() const {
  struct stat now = {};
  if (fstat(descriptor_, &now) != 0 || now.st_size != status_.st_size ||
      now.st_mtim.tv_sec != status_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != status_.st_mtim.tv_nsec) {
    return Error{ErrorCode::kUnavailable,
                 path_ + ": somebody wrote to it while it was loaded; try again when that is done"};
  }
  return {};
}

}  // namespace lmtp::model

#include "trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lmtp::trace {
namespace {

constexpr mode_t kMode = 0600;
constexpr std::string_view kSeparator = ",\n";

// errno, or 0 where all of it is in the file; else `num_written` is.
int write_all(int file, std::string_view text, std::size_t& num_written) {
  num_written = 0;
  while (num_written < text.size()) {
    const ssize_t count = ::write(file, text.data() + num_written, text.size() - num_written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    num_written += static_cast<std::size_t>(count);
  }
  return 0;
}

}  // namespace

// Never one that blocks who writes. What was there goes once it is known that the file is ours.
Result<TraceFile> TraceFile::create(const std::string& path) {
  const auto refuse = [&path](const std::string& why, const char* what_to_do) {
    return Error{ErrorCode::kInvalid,
                 "'" + path + "' cannot be written: " + why + "; " + what_to_do};
  };
  constexpr const char* kOwnFile = "give a file in a folder that this user may write to";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, kMode);
  if (file < 0) return refuse(std::strerror(errno), kOwnFile);
  TraceFile made(file);
  struct stat status = {};
  if (::fstat(file, &status) != 0 || S_ISFIFO(status.st_mode)) {
    return refuse("it is a pipe", kOwnFile);
  }
  if (!S_ISREG(status.st_mode)) return made;
  // Not all file systems have locks.
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return refuse("another process writes to it", "give each server a file of its own");
  }
  // A file that was there may be open to others.
  if (::fchmod(file, kMode) != 0 || ::ftruncate(file, 0) != 0) {
    return refuse(std::strerror(errno), kOwnFile);
  }
  return made;
}

TraceFile::TraceFile(TraceFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)), num_bytes_(other.num_bytes_) {}

TraceFile::~TraceFile() {
  if (file_ >= 0) ::close(file_);
}

Result<void> TraceFile::add(std::string_view events) {
  std::string first;
  if (num_bytes_ == 0 && !events.empty()) {
    first = "[" + std::string(events.substr(1));
    events = first;
  }
  std::size_t num_written = 0;
  const int error = write_all(file_, events, num_written);
  num_bytes_ += static_cast<std::int64_t>(num_written);
  if (error == 0) return {};
  // The last one may be there in part, of which the first byte is no separator yet.
  std::size_t whole = events.substr(0, num_written).rfind(kSeparator);
  if (num_written == 1 && first.empty()) whole = 0;
  if (whole != std::string_view::npos) {
    num_bytes_ -= static_cast<std::int64_t>(num_written - whole);
    (void)!::ftruncate(file_, num_bytes_);
    ::lseek(file_, num_bytes_, SEEK_SET);
  }
  return Error{ErrorCode::kUnavailable, std::strerror(error)};
}

void TraceFile::end() {
  std::size_t num_written = 0;
  (void)write_all(file_, "\n]\n", num_written);
}

}  // namespace lmtp::trace

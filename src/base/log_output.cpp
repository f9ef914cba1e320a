#include "log_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <utility>

#include "lmtp/base/guarded.h"

namespace lmtp::log {
namespace {

constexpr int kStderr = STDERR_FILENO;
// How often a reader is looked for.
constexpr std::chrono::milliseconds kLookTime{20};
constexpr std::chrono::seconds kLastTime{1};

bool takes_now(int fd) {
  pollfd ready{fd, POLLOUT, 0};
  return poll(&ready, 1, 0) > 0;
}

}  // namespace

// Standard error itself must not be set to O_NONBLOCK: other programs may have the same
// description. Opened anew, a pipe or a terminal has another one.
int LogOutput::own_descriptor() {
  struct stat now {};
  if (fstat(kStderr, &now) != 0 || !(S_ISFIFO(now.st_mode) || S_ISCHR(now.st_mode))) return -1;
  if (own_ >= 0 && now.st_dev == device_ && now.st_ino == inode_) return own_;
  if (own_ >= 0) close(own_);
  own_ = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  device_ = now.st_dev;
  inode_ = now.st_ino;
  return own_;
}

// How many bytes went out, or are as good as that since nobody will ever read them.
std::size_t LogOutput::put(std::string_view text) {
  std::size_t num_put = 0;
  while (num_put < text.size()) {
    const std::string_view rest = text.substr(num_put);
    ssize_t num = send(kStderr, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (num < 0 && errno == ENOTSOCK) {
      const int own = own_descriptor();
      // A file takes everything. What cannot be opened anew takes PIPE_BUF once it takes anything.
      if (own < 0 && !takes_now(kStderr)) return num_put;
      num = ::write(own < 0 ? kStderr : own, rest.data(),
                    own < 0 ? std::min<std::size_t>(rest.size(), PIPE_BUF) : rest.size());
    }
    if (num < 0 && errno == EINTR) continue;
    if (num < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return num_put;
    if (num <= 0) return text.size();
    num_put += static_cast<std::size_t>(num);
  }
  return num_put;
}

void LogOutput::write(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!is_running_) put_queued();  // where no thread could be made
  std::size_t num_put = 0;
  if (queued_.empty() && num_dropped_ == 0) num_put = put(line);
  if (num_put == line.size()) return;
  // The rest of a line that has begun is always taken.
  if (num_put == 0 && queued_.size() + line.size() > kQueuedLogBytesMax) {
    ++num_dropped_;
    return;
  }
  queued_.append(line.substr(num_put));
  if (is_running_ || stopping_) return;
  if (thread_.joinable()) thread_.join();
  const Result<void> made = guarded([this]() -> Result<void> {
    thread_ = runtime::Thread([this] { run(); });
    return {};
  });
  is_running_ = made.ok();  // else the next line tries again
}

// False where some of what waits is not taken now.
bool LogOutput::put_queued() {
  while (true) {
    queued_.erase(0, put(queued_));
    if (!queued_.empty() || num_dropped_ == 0) return queued_.empty();
    queued_ = dropped_line_(std::exchange(num_dropped_, 0));
  }
}

// Until nothing waits.
void LogOutput::run() {
  std::unique_lock lock(mutex_);
  runtime::Clock::time_point until = runtime::Clock::time_point::max();
  while (!put_queued()) {
    if (stopping_ && until == runtime::Clock::time_point::max()) {
      until = runtime::Clock::now() + kLastTime;
    }
    if (runtime::Clock::now() >= until) break;
    changed_.wait_for(lock, kLookTime,
                      [&] { return stopping_ && until == runtime::Clock::time_point::max(); });
  }
  is_running_ = false;
}

LogOutput::~LogOutput() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!is_running_) put_queued();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (own_ >= 0) close(own_);
}

}  // namespace lmtp::log

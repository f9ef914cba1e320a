#include "line_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string>

#include "lmtp/base/check.h"

namespace lmtp::server {
namespace {

class LineDescriptors : public LineTransport {
 public:
  LineDescriptors(int in_fd, int out_fd)
      : in_fd_(in_fd), out_fd_(out_fd), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    LMTP_CHECK(wake_fd_ >= 0, "eventfd: no descriptor left");
  }
  ~LineDescriptors() override { ::close(wake_fd_); }
  LineDescriptors(const LineDescriptors&) = delete;
  LineDescriptors& operator=(const LineDescriptors&) = delete;

  Result<Ready> wait(const Wants& wants, runtime::Clock::time_point until) override {
    pollfd fds[] = {
        {wake_fd_, POLLIN, 0},
        {wants.input ? in_fd_ : -1, POLLIN, 0},
        {wants.has_output ? out_fd_ : -1, static_cast<short>(wants.output ? POLLOUT : 0), 0}};
    if (::poll(fds, 3, ms_until(until)) < 0) {
      if (errno == EINTR) return Ready{};
      return Error{ErrorCode::kUnavailable, std::string("poll: ") + std::strerror(errno)};
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const auto num_read = ::read(wake_fd_, &count, sizeof(count));
    const bool can_write = (fds[2].revents & POLLOUT) != 0;
    return Ready{fds[1].revents != 0, can_write, fds[2].revents != 0 && !can_write};
  }
  void wake() noexcept override {
    const std::uint64_t one = 1;
    // Can only fail when 2^64 are unread.
    [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof(one));
  }
  ssize_t read(std::span<char> bytes) override {
    return ::read(in_fd_, bytes.data(), bytes.size());
  }
  ssize_t write(std::string_view bytes) override {
    return ::write(out_fd_, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF));
  }

 private:
  static int ms_until(runtime::Clock::time_point until) {
    if (until == runtime::Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - runtime::Clock::now());
    return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, INT_MAX));
  }

  const int in_fd_;
  const int out_fd_;
  const int wake_fd_;  // readable after a wake()
};

}  // namespace

std::shared_ptr<LineTransport> make_line_descriptors(int in_fd, int out_fd) {
  return std::make_shared<LineDescriptors>(in_fd, out_fd);
}

}  // namespace lmtp::server

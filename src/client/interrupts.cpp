#include "lmtp/client/interrupts.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "lmtp/base/check.h"

namespace lmtp::client {
namespace {

// The only mutable global: a signal handler takes no user argument.
std::atomic<Interrupts*> current = nullptr;

}  // namespace

Interrupts::Interrupts() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  LMTP_CHECK(fd_ >= 0, "eventfd");
  LMTP_CHECK(current.exchange(this) == nullptr, "two of them");
  struct sigaction action = {};
  action.sa_handler = handle;  // without SA_RESTART, so that reads and polls end
  LMTP_CHECK(sigaction(SIGINT, &action, &old_) == 0, errno);
}

Interrupts::~Interrupts() {
  sigaction(SIGINT, &old_, nullptr);
  current.store(nullptr);
  close(fd_);
}

void Interrupts::handle(int) {
  const int saved_errno = errno;
  if (Interrupts* self = current.load()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(self->fd_, &one, sizeof(one));
    if (Client* client = self->client_.load()) client->interrupt();
  }
  errno = saved_errno;
}

bool Interrupts::take() {
  std::uint64_t count = 0;
  return ::read(fd_, &count, sizeof(count)) == sizeof(count);
}

}  // namespace lmtp::client

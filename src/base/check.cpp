#include "lmtp/base/check.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>

namespace lmtp::internal {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  const std::string text = std::string(file) + ":" + std::to_string(line) +
                           ": check failed: " + condition + values + "\n";
  // Where nobody reads, the process ends all the same.
  constexpr int kWaitMs = 1000;
  constexpr std::size_t kTakenAtOnce = 4096;  // by a pipe that can be written
  signal(SIGPIPE, SIG_IGN);
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, kWaitMs) > 0) {
    (void)!write(STDERR_FILENO, text.data(), std::min(text.size(), kTakenAtOnce));
  }
  std::abort();
}

}  // namespace lmtp::internal

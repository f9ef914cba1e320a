#include "events.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>

#include "lmtp/base/log.h"

namespace lmtp::tools {
namespace {

void wake(int fd) {
  const std::uint64_t one = 1;
  if (write(fd, &one, sizeof(one)) < 0) log::error("the main thread cannot be woken");
}

// Written before the handler is there.
pthread_t& main_thread() {
  static pthread_t thread = pthread_self();
  return thread;
}

// Runs in a thread that is not ours and does not block the signals, as those of the CUDA driver:
// the main thread, which blocks them, finds it pending.
void pass_to_main_thread(int signal) { pthread_kill(main_thread(), signal); }

void set_handler(const sigset_t& signals, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    if (sigismember(&signals, signal) == 1) sigaction(signal, &action, nullptr);
  }
}

}  // namespace

Events::Events(bool reloads)
    : loaded_fd_(eventfd(0, EFD_CLOEXEC)),
      gone_fd_(eventfd(0, EFD_CLOEXEC)),
      input_ended_fd_(eventfd(0, EFD_CLOEXEC)) {
  std::signal(SIGPIPE, SIG_IGN);
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  if (reloads) sigaddset(&signals_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  main_thread() = pthread_self();
  set_handler(signals_, pass_to_main_thread);
  signal_fd_ = signalfd(-1, &signals_, SFD_CLOEXEC);
}

Events::~Events() {
  close(signal_fd_);
  close(loaded_fd_);
  close(gone_fd_);
  close(input_ended_fd_);
}

void Events::on_loaded(const Result<void>& outcome) {
  {
    const std::lock_guard lock(mutex_);
    outcome_ = outcome;
  }
  wake(loaded_fd_);
}

void Events::on_gone(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    gone_reason_ = reason;
  }
  wake(gone_fd_);
}

void Events::on_input_ended(const Result<void>& outcome) {
  outcome ? wake(input_ended_fd_) : on_gone(outcome.error().message);
}

Events::Kind Events::wait(int timeout_ms) {
  pollfd fds[4] = {{signal_fd_, POLLIN, 0},
                   {gone_fd_, POLLIN, 0},
                   {input_ended_fd_, POLLIN, 0},
                   {loaded_seen_ ? -1 : loaded_fd_, POLLIN, 0}};
  if (poll(fds, 4, timeout_ms) <= 0) return Kind::kTimeout;
  if (fds[0].revents != 0) return take_signal();
  if (fds[1].revents != 0) return Kind::kGone;
  if (fds[2].revents != 0) return Kind::kInputEnded;
  loaded_seen_ = true;
  return Kind::kLoaded;
}

Result<void> Events::load_outcome() {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

std::string Events::gone_reason() {
  const std::lock_guard lock(mutex_);
  return gone_reason_;
}

void Events::stop_catching() {
  set_handler(signals_, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
}

// A pending signal would end the process when it is unblocked.
Events::Kind Events::take_signal() {
  signalfd_siginfo info{};
  if (read(signal_fd_, &info, sizeof(info)) < 0) log::error("a signal cannot be read");
  return info.ssi_signo == SIGHUP ? Kind::kReload : Kind::kSignal;
}

}  // namespace lmtp::tools

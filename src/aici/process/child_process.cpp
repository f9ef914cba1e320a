#include "process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

namespace lmtp::aici {
namespace {

constexpr int kExitNotStarted = 127;

// Between fork and exec: nothing here may take a lock or memory, which other threads may hold. Its
// end is reported by `report`.
[[noreturn]] void become(char* const* arguments, const char* folder, pid_t parent, int output,
                         int report) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool is_ready = getppid() == parent && setpgid(0, 0) == 0 && chdir(folder) == 0 &&
                        dup2(null, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
                        close_range(STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0;
  if (is_ready) execv(arguments[0], arguments);
  const int error = errno;
  (void)!write(report, &error, sizeof(error));
  _exit(kExitNotStarted);
}

std::string reason_of(const siginfo_t& end) {
  if (end.si_code == CLD_EXITED) {
    return "it has ended with exit code " + std::to_string(end.si_status);
  }
  return std::string("it has ended by a signal: ") + strsignal(end.si_status);
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(std::vector<std::string> arguments,
                                                          const std::string& folder, int output) {
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const auto failed = [&](int error) {
    return Error{ErrorCode::kUnavailable,
                 arguments.front() + " cannot be started: " + std::strerror(error)};
  };
  std::array<int, 2> report{};  // closed by exec
  if (pipe2(report.data(), O_CLOEXEC) != 0) return failed(errno);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(pointers.data(), folder.c_str(), parent, output, report[1]);
  int error = pid < 0 ? errno : 0;
  close(report[1]);
  if (pid > 0) {
    ssize_t got = 0;
    do {
      got = read(report[0], &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
  }
  close(report[0]);
  if (error == 0) return std::unique_ptr<ChildProcess>(new ChildProcess(pid));
  if (pid > 0) waitpid(pid, nullptr, 0);
  return failed(error);
}

// The group keeps its number while its first process is a zombie, so that the signal cannot hit
// others.
ChildProcess::~ChildProcess() {
  kill(-pid_, SIGTERM);
  const auto until = std::chrono::steady_clock::now() + kGraceTime;
  while (end_reason().empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string ChildProcess::end_reason() {
  siginfo_t end{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return std::string("it cannot be watched: ") + std::strerror(errno);
  }
  return end.si_pid == 0 ? std::string() : reason_of(end);
}

Result<std::string> output_of(std::vector<std::string> arguments, std::chrono::milliseconds time) {
  constexpr std::size_t kBytesMax = 1U << 20U;
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return Error{ErrorCode::kUnavailable, std::string("no pipe: ") + std::strerror(errno)};
  }
  auto child = ChildProcess::start(std::move(arguments), ".", pipe[1]);
  close(pipe[1]);
  std::string output;
  const auto until = std::chrono::steady_clock::now() + time;
  while (child && output.size() < kBytesMax) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd fd{pipe[0], POLLIN, 0};
    if (left.count() <= 0 || poll(&fd, 1, static_cast<int>(left.count())) == 0) break;
    std::array<char, 4096> bytes{};
    const ssize_t got = read(pipe[0], bytes.data(), bytes.size());
    if (got == 0 || (got < 0 && errno != EINTR)) break;
    if (got > 0) output.append(bytes.data(), static_cast<std::size_t>(got));
  }
  close(pipe[0]);
  if (!child) return child.error();
  return output;
}

}  // namespace lmtp::aici

#include "template_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "lmtp/base/installed.h"
#include "lmtp/text/chat_template.h"

namespace lmtp::text {
namespace {

constexpr const char* kProgram = "lib/lmtp/lmtp-jinja";
// Its limits are of processor time, of which a busy machine may give it little: this, and ten times
// the processor's.
constexpr std::chrono::seconds kAnswerTimeMax{10};

Result<std::string> find_program() {
  const auto path = installed_path(kProgram);
  if (!path) return path.error();
  std::error_code error;
  if (std::filesystem::exists(*path, error)) return path->string();
  return Error{ErrorCode::kInvalid,
               "this installation renders no chat templates (" + path->string() +
                   " is not there): install all of a build with -DLMTP_CHAT_TEMPLATES=ON"};
}

// Its standard input is the socket; it has no other open file but standard output and error.
int spawn(const std::string& program, int socket, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPROF);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  // A group of its own: Ctrl-C at the server's terminal is the server's.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string name = program;
  std::array<char*, 2> arguments = {name.data(), nullptr};
  const int error =
      posix_spawn(&pid, program.c_str(), &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

Error reason_of(int status, int cpu_ms_max) {
  if (!WIFSIGNALED(status)) return {ErrorCode::kUnavailable, "its program has ended"};
  const int signal = WTERMSIG(status);
  if (signal == SIGPROF) {
    return {ErrorCode::kInvalid, "it takes more than " + std::to_string(cpu_ms_max) + " ms"};
  }
  if (signal == SIGSEGV) return {ErrorCode::kInvalid, "it is nested too deep"};
  const bool is_from_outside = signal == SIGKILL || signal == SIGTERM;
  return {is_from_outside ? ErrorCode::kUnavailable : ErrorCode::kInvalid,
          std::string("its program has ended by a signal: ") + strsignal(signal)};
}

}  // namespace

bool renders_chat_templates() { return find_program().ok(); }

Result<std::unique_ptr<TemplateProcess>> TemplateProcess::start() {
  const Result<std::string> program = find_program();
  if (!program) return program.error();
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return Error{ErrorCode::kUnavailable,
                 std::string("no socket for lmtp-jinja: ") + std::strerror(errno)};
  }
  pid_t pid = 0;
  const int error = spawn(*program, sockets[1], pid);
  close(sockets[1]);
  if (error != 0) {
    close(sockets[0]);
    return Error{ErrorCode::kUnavailable, *program + " cannot be started: " + std::strerror(error)};
  }
  fcntl(sockets[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<TemplateProcess>(new TemplateProcess(pid, sockets[0]));
}

TemplateProcess::~TemplateProcess() {
  (void)end(0);
  close(socket_);
}

Result<TemplateProcess::Answer> TemplateProcess::ask(std::string_view frame, int cpu_ms_max) {
  const Time deadline = std::chrono::steady_clock::now() + kAnswerTimeMax +
                        10 * std::chrono::milliseconds(cpu_ms_max);
  std::string header;
  append_number(static_cast<std::uint32_t>(frame.size()), header);
  std::uint32_t size = 0;
  if (!send_all(header, deadline) || !send_all(frame, deadline) ||
      !receive_all(reinterpret_cast<char*>(&size), sizeof(size), deadline) || size == 0 ||
      size > kFrameBytesMax) {
    return end(cpu_ms_max);
  }
  std::string answer(size, '\0');
  if (!receive_all(answer.data(), size, deadline)) return end(cpu_ms_max);
  return Answer{static_cast<AnswerKind>(answer[0]), answer.substr(1)};
}

bool TemplateProcess::wait_for(short events, Time deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd fd{socket_, events, 0};
  const int ready = poll(&fd, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  is_late_ = ready == 0;
  return ready > 0 || (ready < 0 && errno == EINTR);
}

bool TemplateProcess::send_all(std::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN || !wait_for(POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

bool TemplateProcess::receive_all(char* to, std::size_t size, Time deadline) {
  while (size > 0) {
    const ssize_t got = recv(socket_, to, size, 0);
    if (got > 0) {
      to += got;
      size -= static_cast<std::size_t>(got);
    } else if (got == 0 || errno != EAGAIN || !wait_for(POLLIN, deadline)) {
      return false;
    }
  }
  return true;
}

// What has ended by itself keeps its own reason.
Error TemplateProcess::end(int cpu_ms_max) {
  int status = 0;
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
  }
  if (is_late_) return {ErrorCode::kInvalid, "it was not done in time"};
  return reason_of(status, cpu_ms_max);
}

}  // namespace lmtp::text

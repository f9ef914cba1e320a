#include "children.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lmtp/base/json.h"

namespace lmtp::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kDelayMin{1};
constexpr std::chrono::seconds kDelayMax{60};
// By then an idle one has ended: main() has ended its streams before.
constexpr std::chrono::milliseconds kEndPatience{700};
constexpr int kReapMs = 10;      // between two looks whether one that ends has ended
constexpr int kIdleMs = 60'000;  // and else, as its output ends with it
constexpr std::size_t kLineMax = std::size_t{64} << 10;
constexpr std::string_view kMistake = "lmtp-serve: ";
// Of this process alone; its manager must not hear of the children.
constexpr std::string_view kOwnVariables[] = {"NOTIFY_SOCKET=", "WATCHDOG_USEC=", "WATCHDOG_PID="};
constexpr std::string_view kDevicesVariable = "CUDA_VISIBLE_DEVICES=";

// All that a child needs, so that it does not allocate: other threads may hold locks at the fork.
struct Launch {
  explicit Launch(const ChildPlan& plan) {
    words = plan.arguments;
    words.insert(words.begin(), "lmtp-serve");
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      const auto begins = [&](std::string_view name) { return text.starts_with(name); };
      if (std::ranges::any_of(kOwnVariables, begins)) continue;
      if (!plan.devices.empty() && begins(kDevicesVariable)) continue;
      variables.emplace_back(text);
    }
    if (!plan.devices.empty()) variables.push_back(std::string(kDevicesVariable) + plan.devices);
    variables.push_back(std::string(kChildVariable) + "=1");
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& variable : variables) envp.push_back(variable.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    binding = Binding(plan.processors);
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) num_fds = limit.rlim_cur;
  }

  std::vector<std::string> words;
  std::vector<std::string> variables;
  std::vector<char*> argv;
  std::vector<char*> envp;
  Binding binding;
  pid_t parent = getpid();
  rlim_t num_fds = 1024;
};

// In the child.
[[noreturn]] void become_server(const Launch& launch, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // of the thread that has forked
  if (getppid() != launch.parent) _exit(1);
  setpgid(0, 0);  // a terminal's Ctrl-C is for the parent, which tells the children
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  constexpr unsigned kFirst = STDERR_FILENO + 1;
  if (syscall(SYS_close_range, kFirst, ~0U, 0) != 0) {
    for (rlim_t fd = kFirst; fd < launch.num_fds; ++fd) close(static_cast<int>(fd));
  }
  launch.binding.apply();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve("/proc/self/exe", launch.argv.data(), launch.envp.data());
  constexpr std::string_view kFailed = "lmtp-serve: /proc/self/exe cannot be started\n";
  (void)!write(STDERR_FILENO, kFailed.data(), kFailed.size());
  _exit(1);
}

std::string end_text(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return "was ended by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return "has ended with exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

struct Children::Child {
  ChildPlan plan;
  pid_t pid = -1;   // -1: it does not run
  int output = -1;  // what it writes; -1: it has closed that
  std::string begun_line = {};
  std::string error = {};  // the last that it has written
  Clock::time_point started = {};
  Clock::time_point due = {};  // to start it again
  std::chrono::seconds delay{0};
};

Children::Children(std::vector<ChildPlan> plans, log::Format format)
    : format_(format), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (ChildPlan& plan : plans) children_.push_back({std::move(plan)});
  thread_ = std::thread([this] { run(); });
}

Children::~Children() {
  stopping_ = true;
  wake();
  thread_.join();
  close(wake_fd_);
}

std::optional<std::string> Children::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Children::keep() {
  keeping_ = true;
  wake();
}

void Children::wake() const {
  const std::uint64_t one = 1;
  if (write(wake_fd_, &one, sizeof(one)) < 0) log::error("the children's thread cannot be woken");
}

// All of them are this thread's children, with which they die.
void Children::run() {
  std::optional<Clock::time_point> kill_at;
  for (Child& child : children_) start(child);
  for (;;) {
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
    for (const Child& child : children_) fds.push_back({child.output, POLLIN, 0});
    poll(fds.data(), fds.size(), kill_at ? kReapMs : wait_ms());
    std::uint64_t num_wakes = 0;
    (void)!read(wake_fd_, &num_wakes, sizeof(num_wakes));
    for (Child& child : children_) {
      if (fds[1 + static_cast<std::size_t>(&child - children_.data())].revents != 0) {
        read_output(child);
      }
      reap(child);
    }
    const auto runs = [](const Child& child) { return child.pid > 0; };
    if (!stopping_) {
      for (Child& child : children_) {
        if (keeping_ && !runs(child) && Clock::now() >= child.due) start(child);
      }
      continue;
    }
    if (std::ranges::none_of(children_, runs)) return;
    const bool is_late = kill_at && Clock::now() >= *kill_at;
    for (const Child& child : children_) {
      if (runs(child) && (!kill_at || is_late)) kill(child.pid, is_late ? SIGKILL : SIGTERM);
    }
    if (!kill_at) kill_at = Clock::now() + kEndPatience;
  }
}

int Children::wait_ms() const {
  int least = kIdleMs;
  for (const Child& child : children_) {
    if (child.pid > 0) {
      if (child.output < 0) least = std::min(least, kReapMs);
    } else if (keeping_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(child.due - Clock::now());
      least = std::clamp(static_cast<int>(left.count()), 0, least);
    }
  }
  return least;
}

void Children::start(Child& child) {
  Launch launch(child.plan);
  int ends[2] = {-1, -1};
  child.started = Clock::now();
  child.error.clear();
  child.pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
  if (child.pid == 0) become_server(launch, ends[1]);
  const int error = errno;
  close(ends[1]);
  child.output = ends[0];
  if (child.pid > 0) {
    fcntl(child.output, F_SETFL, O_NONBLOCK);
    return;
  }
  close(std::exchange(child.output, -1));
  child.error = std::string("cannot be started: ") + std::strerror(error);
  on_end(child, W_EXITCODE(1, 0));
}

void Children::read_output(Child& child) {
  std::array<char, 4096> block;
  for (;;) {
    const ssize_t count = read(child.output, block.data(), block.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) break;
    for (const char c : std::string_view(block.data(), static_cast<std::size_t>(count))) {
      if (c != '\n') child.begun_line += c;
      if (c == '\n' || child.begun_line.size() >= kLineMax) {
        take_line(child, std::exchange(child.begun_line, {}));
      }
    }
  }
  if (!child.begun_line.empty()) take_line(child, std::exchange(child.begun_line, {}));
  close(std::exchange(child.output, -1));
}

void Children::take_line(Child& child, const std::string& line) {
  if (format_ == log::Format::kText) {
    if (line.starts_with(kMistake)) child.error = line.substr(kMistake.size());
    log::write_line(child.plan.name + ": " + line);
    return;
  }
  if (const Result<Json> object = parse_json_object(line, "the line"); object) {
    const std::string* level = find_json_text(*object, "level");
    const std::string* message = find_json_text(*object, "message");
    if (level != nullptr && *level == "error" && message != nullptr) child.error = *message;
    log::write_line("{\"child\": \"" + child.plan.name + "\", " + line.substr(1));
  } else {
    log::info(child.plan.name + ": " + line);
  }
}

void Children::reap(Child& child) {
  int status = 0;
  if (child.pid <= 0 || waitpid(child.pid, &status, WNOHANG) != child.pid) return;
  child.pid = -1;
  if (child.output >= 0) read_output(child);
  if (child.output >= 0) close(std::exchange(child.output, -1));
  on_end(child, status);
}

void Children::on_end(Child& child, int status) {
  if (stopping_) return;
  const bool said_why = WIFEXITED(status) && WEXITSTATUS(status) != 0 && !child.error.empty();
  const std::string what =
      child.plan.name + (said_why ? ": " + child.error : " " + end_text(status));
  if (!keeping_) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = what;
    return;
  }
  if (Clock::now() - child.started >= kDelayMax) child.delay = {};
  child.delay = std::clamp(2 * child.delay, kDelayMin, kDelayMax);
  child.due = Clock::now() + child.delay;
  log::warning(what + "; it is started again in " + std::to_string(child.delay.count()) + " s");
}

}  // namespace lmtp::tools

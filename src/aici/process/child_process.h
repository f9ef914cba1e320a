// ChildProcess: a program that runs beside this one, with all that it starts.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::aici {

// Owner: whoever started it. One thread: the program ends when the thread that started it does.
class ChildProcess {
 public:
  // In a process group of its own and in `folder`, with nothing open but its standard streams: no
  // input, `output`, and our standard error.
  static Result<std::unique_ptr<ChildProcess>> start(std::vector<std::string> arguments,
                                                     const std::string& folder, int output);
  // SIGTERM to the whole group, and SIGKILL to what is left after kGraceTime.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Why it has ended; empty while it runs.
  std::string end_reason();
  pid_t pid() const { return pid_; }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
};

inline constexpr std::chrono::milliseconds kGraceTime{500};

// What a program writes to its standard output until it ends, or until that time is over.
Result<std::string> output_of(std::vector<std::string> arguments, std::chrono::milliseconds time);

}  // namespace lmtp::aici

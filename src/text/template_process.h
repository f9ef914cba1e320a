// lmtp-jinja, the program of chat templates, as a process of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "jinja/frames.h"
#include "lmtp/base/result.h"

namespace lmtp::text {

// Owner: one thread at a time.
class TemplateProcess {
 public:
  // Starts the program lib/lmtp/lmtp-jinja beside bin/.
  static Result<std::unique_ptr<TemplateProcess>> start();
  // Ends it, whatever it does.
  ~TemplateProcess();
  TemplateProcess(const TemplateProcess&) = delete;
  TemplateProcess& operator=(const TemplateProcess&) = delete;

  struct Answer {
    AnswerKind kind = AnswerKind::kFailed;
    std::string text;
  };
  // `cpu_ms_max`: how long it may compute, which it sees to itself. The error says why the process
  // has ended, of its own or because it did not answer in time: there is nothing left to ask then.
  // kUnavailable: something else has ended it than what it did. REQUIRES: at most kFrameBytesMax
  // bytes.
  Result<Answer> ask(std::string_view frame, int cpu_ms_max);

 private:
  TemplateProcess(pid_t pid, int socket) : pid_(pid), socket_(socket) {}

  using Time = std::chrono::steady_clock::time_point;
  bool wait_for(short events, Time deadline);
  bool send_all(std::string_view bytes, Time deadline);
  bool receive_all(char* to, std::size_t size, Time deadline);
  Error end(int cpu_ms_max);

  pid_t pid_;  // 0: it has ended
  bool is_late_ = false;
  int socket_;
};

}  // namespace lmtp::text

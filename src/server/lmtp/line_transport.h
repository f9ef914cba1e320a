// LineTransport: where a LineSession reads and writes.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string_view>

#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"

namespace lmtp::server {

// Owner: the session, and the mailbox that engines may hold for longer. All but wake() on the
// session's thread.
class LineTransport {
 public:
  struct Wants {
    bool input = false;
    bool output = false;      // is to be written
    bool has_output = false;  // whether that is closed matters
  };
  struct Ready {
    bool input = false;
    bool output = false;
    bool output_closed = false;
  };

  virtual ~LineTransport() = default;
  // Returns when something of that is so, after a wake(), or then; late by a millisecond at most.
  virtual Result<Ready> wait(const Wants& wants, runtime::Clock::time_point until) = 0;
  // Any thread.
  virtual void wake() noexcept = 0;
  // As read(2) and write(2), errno among it. REQUIRES: what wait() said.
  virtual ssize_t read(std::span<char> bytes) = 0;
  virtual ssize_t write(std::string_view bytes) = 0;
};

// The descriptors outlive what calls read() and write(). A pipe that can be written to takes
// PIPE_BUF bytes, which are what write() tries at most.
std::shared_ptr<LineTransport> make_line_descriptors(int in_fd, int out_fd);

}  // namespace lmtp::server

// LogOutput: lines to standard error, which never wait for whoever reads them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "lmtp/base/runtime.h"

namespace lmtp::log {

// Lines that wait for a reader beside what the pipe itself holds; more are dropped.
inline constexpr std::size_t kQueuedLogBytesMax = std::size_t{256} << 10;

// A line goes out before write() returns, as long as standard error takes it at once. Else it
// waits, and a thread writes what waits. Owner: the log. write() from any thread.
class LogOutput {
 public:
  // The line that says how many were dropped; it is written once lines go out again.
  using DroppedLine = std::function<std::string(std::size_t num_dropped)>;

  explicit LogOutput(DroppedLine dropped_line) : dropped_line_(std::move(dropped_line)) {}
  // Writes what waits, for a second at most where nobody reads.
  ~LogOutput();
  LogOutput(const LogOutput&) = delete;
  LogOutput& operator=(const LogOutput&) = delete;

  void write(std::string_view line);

 private:
  std::size_t put(std::string_view text);
  bool put_queued();
  int own_descriptor();
  void run();

  const DroppedLine dropped_line_;
  std::mutex mutex_;  // guards all below but the thread
  std::string queued_;
  std::size_t num_dropped_ = 0;
  bool stopping_ = false;
  bool is_running_ = false;  // the thread, until it has found nothing to do
  // A description of standard error's pipe or terminal that does not block, while standard error is
  // that one; -1: none.
  int own_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  runtime::Condition changed_;
  runtime::Thread thread_;
};

}  // namespace lmtp::log

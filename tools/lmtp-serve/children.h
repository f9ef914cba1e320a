// Children: the servers of --layout, processes of this program.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lmtp/base/log.h"
#include "lmtp/base/processors.h"

namespace lmtp::tools {

// Is set in a child's environment.
inline constexpr const char* kChildVariable = "LMTP_SERVE_CHILD";

struct ChildPlan {
  std::string name;                    // for the log
  std::string listen;                  // unix:PATH
  std::vector<std::string> arguments;  // of lmtp-serve
  std::string devices;                 // its CUDA_VISIBLE_DEVICES; empty: as this process has it
  // Where it runs, and with the node whose memory it prefers; without ids: anywhere.
  ProcessorShare processors;
};

// What they write comes out on standard error, each line with its child's name; of a log in JSON it
// is the field "child". They die with this process at the latest. Owner: main(); its own thread
// starts them and waits for them.
class Children {
 public:
  // Starts them. REQUIRES: signals are blocked that are not to end this process.
  Children(std::vector<ChildPlan> plans, log::Format format);
  ~Children();  // ends them: by SIGTERM, and shortly after by SIGKILL
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Why one has ended before keep(), by the last error that it has written; those are not started
  // again. Any thread.
  std::optional<std::string> failure();

  // From now on one that ends is started again, after 1 s, 2 s and so on to 60 s; after 1 s once it
  // has run for a minute. Any thread.
  void keep();

 private:
  struct Child;

  void run();
  void start(Child& child);
  void read_output(Child& child);
  void take_line(Child& child, const std::string& line);
  void reap(Child& child);
  void on_end(Child& child, int status);
  int wait_ms() const;
  void wake() const;

  const log::Format format_;
  std::vector<Child> children_;  // of the thread
  int wake_fd_ = -1;
  std::atomic<bool> keeping_ = false;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::optional<std::string> failure_;
  std::thread thread_;
};

}  // namespace lmtp::tools

// Trace: what was said with a runtime, a line of JSON for each exchange, as AICI's own engines
// write it: {"timestamp", "suff", "cmd", "resp"}. It has prompts in it.
#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "lmtp/base/json.h"
#include "lmtp/base/result.h"

namespace lmtp::aici {

// Owner: a ProcessRuntime. Any thread.
class Trace {
 public:
  // Appends to the file.
  static Result<std::unique_ptr<Trace>> open(const std::string& path);
  // suffix: of the channel, "" or "-side".
  void write(const std::string& suffix, const Json& command, const Json& answer);

 private:
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  explicit Trace(std::FILE* file) : file_(file) {}

  std::mutex mutex_;
  std::unique_ptr<std::FILE, Close> file_;
};

// On one line; bytes that are no UTF-8 become U+FFFD.
std::string wire_text(const Json& json);

}  // namespace lmtp::aici

// The process's log: one line an event on stderr. Prompts, generated text and tokens of access are
// never logged above level trace.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::log {

enum class Level { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// "trace", "debug", "info", "warning" (or "warn"), "error", "off".
Result<Level> parse_level(std::string_view name);

// Any thread; takes effect at once.
void set_level(Level level);

// Whether write() at this level would write: for lines that take some making. Any thread.
bool enabled(Level level);

// Any thread. Control characters inside `message` are written as "\n" or "\x1b", so that one event
// stays one line.
void write(Level level, std::string_view message);

inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warning(std::string_view message) { write(Level::kWarning, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

// A warning that others can bring about as often as they like: one line a second at most, which
// says how many were left out before it. Any thread.
class Repeated {
 public:
  void warning(const std::string& message);

 private:
  std::atomic<std::int64_t> next_ms_ = 0;
  std::atomic<std::int64_t> num_left_out_ = 0;
};

}  // namespace lmtp::log

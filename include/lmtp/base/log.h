// The process's log: one line for each event, on stderr. Prompts, generated text and access tokens
// are logged at level trace only, if at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "lmtp/base/result.h"

namespace lmtp::log {

enum class Level { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// "trace", "debug", "info", "warning" (or "warn"), "error", "off".
Result<Level> parse_level(std::string_view name);

// "text": `2026-01-31T12:00:00.000 info message`; "json": an object {"time", "level", "message"},
// with the fields behind it.
enum class Format { kText, kJson };
Result<Format> parse_format(std::string_view name);

// Any thread; take effect at once.
void set_level(Level level);
void set_format(Format format);

// Whether write() at this level would write: to skip composing an expensive line. Any thread.
bool enabled(Level level);

// Takes the events in the place of stderr, for a program that shows them in its own way; any thread
// calls it. REQUIRES: no other thread writes yet.
void set_sink(std::function<void(Level level, std::string_view message)> sink);

// What a program may want of an event; the message says it for people. Field names are ours, and
// not "time", "level" or "message".
struct Field {
  std::string_view name;
  std::variant<std::int64_t, double, std::string_view> value;
};

// Any thread. Control characters inside `message` are written as "\n" or "\x1b", so that one event
// stays one line. JSON is valid whatever the bytes: what is not UTF-8 becomes U+FFFD.
void write(Level level, std::string_view message, std::span<const Field> fields = {});

// A line that another process has composed, as it is; but for a sink, which gets the events of this
// one alone. Any thread.
void write_line(std::string_view line);

inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warning(std::string_view message) { write(Level::kWarning, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

// A rate-limited warning, for events that clients can cause at will: at most one line a second,
// which says how many were suppressed before it. Any thread.
class RateLimited {
 public:
  void warning(const std::string& message);

 private:
  std::atomic<std::int64_t> next_ms_ = 0;
  std::atomic<std::int64_t> num_left_out_ = 0;
};

}  // namespace lmtp::log

// The process's log: one line an event on stderr. Prompts, generated text and tokens of access are
// never logged above level trace.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::log {

enum class Level { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// "trace", "debug", "info", "warning" (or "warn"), "error", "off".
Result<Level> parse_level(std::string_view name);

// Any thread; takes effect at once.
void set_level(Level level);

// Any thread. Control characters inside `message` are written as "\n" or "\x1b", so that one event
// stays one line.
void write(Level level, std::string_view message);

inline void debug(std::string_view message) { write(Level::kDebug, message); }
inline void info(std::string_view message) { write(Level::kInfo, message); }
inline void warning(std::string_view message) { write(Level::kWarning, message); }
inline void error(std::string_view message) { write(Level::kError, message); }

}  // namespace lmtp::log

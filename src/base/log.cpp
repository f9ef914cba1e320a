#include "lmtp/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <memory>
#include <utility>

namespace lmtp::log {
namespace {

constexpr std::int64_t kRepeatMs = 1000;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace:
      return spdlog::level::trace;
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      break;
  }
  return spdlog::level::off;
}

// The one logger of the process, made on first use; spdlog's sinks lock, so any thread may write.
spdlog::logger& logger() {
  static const std::unique_ptr<spdlog::logger> instance = [] {
    auto made =
        std::make_unique<spdlog::logger>("lmtp", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

// Control characters may come from clients (names in a request): escaped, they can neither forge a
// line nor move a terminal's cursor.
std::string one_line(std::string_view message) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string line;
  line.reserve(message.size());
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      line += "\\x";
      line += kHex[byte >> 4];
      line += kHex[byte & 0xF];
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

Result<Level> parse_level(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Level>, 7> kNames = {{
      {"trace", Level::kTrace},
      {"debug", Level::kDebug},
      {"info", Level::kInfo},
      {"warning", Level::kWarning},
      {"warn", Level::kWarning},
      {"error", Level::kError},
      {"off", Level::kOff},
  }};
  for (const auto& [known, level] : kNames) {
    if (known == name) return level;
  }
  return Error{ErrorCode::kInvalid, "--log-level: '" + std::string(name) +
                                        "' is not one of trace, debug, info, warning, error, off"};
}

void set_level(Level level) { logger().set_level(to_spdlog(level)); }

bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

void write(Level level, std::string_view message) {
  if (!enabled(level)) return;
  logger().log(to_spdlog(level), one_line(message));
}

void RateLimited::warning(const std::string& message) {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::milliseconds>(since_start).count();
  std::int64_t due = next_ms_;
  if (now < due || !next_ms_.compare_exchange_strong(due, now + kRepeatMs)) {
    ++num_left_out_;
    return;
  }
  const std::int64_t num_left_out = num_left_out_.exchange(0);
  log::warning(num_left_out == 0
                   ? message
                   : message + " (and " + std::to_string(num_left_out) + " more like it before)");
}

}  // namespace lmtp::log

#include "lmtp/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/base/runtime.h"
#include "lmtp/base/text.h"
#include "log_output.h"

namespace lmtp::log {
namespace {

constexpr std::int64_t kRepeatMs = 1000;
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%e %l %v";
// %v is the rest of the object.
constexpr const char* kJsonPattern = R"({"time": "%Y-%m-%dT%H:%M:%S.%e%z", "level": "%l", %v})";

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

std::atomic<Format>& format() {
  static std::atomic<Format> current = Format::kText;
  return current;
}

std::string dropped_line(std::size_t num_dropped);

// The one logger of the process, made on first use; the sink locks, so any thread may write.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void write_line(std::string_view line) { output_.write(std::string(line) + '\n'); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    output_.write({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  LogOutput output_{dropped_line};
};

const std::shared_ptr<StderrSink>& stderr_sink() {
  static const auto instance = std::make_shared<StderrSink>();
  return instance;
}

spdlog::logger& logger() {
  static const std::unique_ptr<spdlog::logger> instance = [] {
    auto made = std::make_unique<spdlog::logger>("lmtp", stderr_sink());
    made->set_pattern(kTextPattern);
    return made;
  }();
  return *instance;
}

std::function<void(Level, std::string_view)>& sink() {
  static std::function<void(Level, std::string_view)> current;
  return current;
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

std::string json_members(std::string_view message, std::span<const Field> fields) {
  std::string line = "\"message\": ";
  append_json_string(message, line);
  for (const Field& field : fields) {
    line += ", ";
    append_json_string(field.name, line);
    line += ": ";
    if (const auto* const text = std::get_if<std::string_view>(&field.value)) {
      append_json_string(*text, line);
    } else if (const auto* const whole = std::get_if<std::int64_t>(&field.value)) {
      line += number_text(*whole);
    } else {
      const double number = std::get<double>(field.value);
      line += std::isfinite(number) ? number_text(number) : "null";
    }
  }
  return line;
}

// On the output's thread, which must not use the sink's formatter.
std::string dropped_line(std::size_t num_dropped) {
  const std::string text = std::to_string(num_dropped) +
                           " lines of the log are missing here: standard error was not read";
  const bool is_json = format() == Format::kJson;
  const std::string content = is_json ? json_members(text, {}) : text;
  spdlog::memory_buf_t line;
  spdlog::pattern_formatter(is_json ? kJsonPattern : kTextPattern)
      .format(spdlog::details::log_msg("lmtp", spdlog::level::warn, content), line);
  return {line.data(), line.size()};
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

Result<Format> parse_format(std::string_view name) {
  if (name == "text") return Format::kText;
  if (name == "json") return Format::kJson;
  return Error{ErrorCode::kInvalid,
               "--log-format: '" + std::string(name) + "' is not one of text, json"};
}

void set_format(Format wanted) {
  format() = wanted;
  logger().set_pattern(wanted == Format::kJson ? kJsonPattern : kTextPattern);
}

void set_sink(std::function<void(Level, std::string_view)> wanted) { sink() = std::move(wanted); }

void set_level(Level level) { logger().set_level(to_spdlog(level)); }

bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

void write(Level level, std::string_view message, std::span<const Field> fields) {
  if (!enabled(level)) return;
  if (sink()) return sink()(level, message);
  const bool is_json = format() == Format::kJson;
  logger().log(to_spdlog(level), is_json ? json_members(message, fields) : one_line(message));
}

void write_line(std::string_view line) { stderr_sink()->write_line(line); }

void RateLimited::warning(const std::string& message) {
  const auto since_start = runtime::Clock::now().time_since_epoch();
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

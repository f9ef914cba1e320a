#include "unknown_keys.h"

#include <chrono>
#include <cstddef>
#include <mutex>
#include <set>

#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"

namespace lmtp::server {
namespace {

using Clock = runtime::Clock;

constexpr std::size_t kLoggedKeysMax = 256;
constexpr std::chrono::seconds kUnknownKeysLogInterval{1};

// The log is the process's, and so is what stands in it.
struct LoggedKeys {
  std::mutex mutex;
  std::set<std::string, std::less<>> keys;
  Clock::time_point next = {};  // no line before
};

// A name is new once for each kind.
void log_new_names(const std::string& line, const std::string& kind,
                   const std::vector<std::string>& names) {
  if (names.empty()) return;
  static LoggedKeys logged;
  const std::lock_guard lock(logged.mutex);
  const Clock::time_point now = Clock::now();
  if (now < logged.next) return;
  std::string whole = line;
  constexpr std::size_t kLineBytesMax = 4096;
  for (const std::string& name : names) {
    if (whole.size() > kLineBytesMax) break;
    if (logged.keys.size() == kLoggedKeysMax) logged.keys.clear();
    if (logged.keys.insert(kind + name).second) whole += " '" + name + "'";
  }
  if (whole.size() == line.size()) return;
  logged.next = now + kUnknownKeysLogInterval;
  log::warning(whole);
}

}  // namespace

void log_unknown_keys(std::string_view sender, const std::vector<std::string>& keys) {
  log_new_names(std::string(sender) + ": ignored unknown keys:", "", keys);
}

void log_once(const std::string& line, const std::vector<std::string>& names) {
  log_new_names(line, line, names);
}

}  // namespace lmtp::server

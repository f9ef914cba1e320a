#include "unknown_keys.h"

#include <chrono>
#include <cstddef>
#include <mutex>
#include <set>

#include "lmtp/base/log.h"

namespace lmtp::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLoggedKeysMax = 256;
constexpr std::chrono::seconds kUnknownKeysLogInterval{1};

// The log is the process's, and so is what stands in it.
struct LoggedKeys {
  std::mutex mutex;
  std::set<std::string, std::less<>> keys;
  Clock::time_point next = {};  // no line before
};

}  // namespace

void log_unknown_keys(std::string_view sender, const std::vector<std::string>& keys) {
  if (keys.empty()) return;
  static LoggedKeys logged;
  const std::lock_guard lock(logged.mutex);
  const Clock::time_point now = Clock::now();
  if (now < logged.next) return;
  std::string line = std::string(sender) + ": ignored unknown keys:";
  const std::size_t num_plain = line.size();
  for (const std::string& key : keys) {
    if (logged.keys.size() == kLoggedKeysMax) logged.keys.clear();
    if (logged.keys.insert(key).second) line += " '" + key + "'";
  }
  if (line.size() == num_plain) return;
  logged.next = now + kUnknownKeysLogInterval;
  log::warning(line);
}

}  // namespace lmtp::server

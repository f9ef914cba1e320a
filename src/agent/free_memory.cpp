#include "free_memory.h"

#include <algorithm>
#include <fstream>

namespace lmtp::agent {
namespace {

// The number that a file holds; nullopt if there is no such file or it says "max".
std::optional<std::int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::optional<std::int64_t> available_bytes(const std::string& proc) {
  std::ifstream file(proc + "/meminfo");
  std::string name;
  std::int64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes) {
    std::getline(file, unit);
    if (name == "MemAvailable:") return kibibytes * 1024;
  }
  return std::nullopt;
}

// The part of the group's memory.current that is reclaimed on demand: cached pages of files that
// were read or mapped, such as weights.
std::int64_t file_cache_bytes(const std::string& group) {
  std::ifstream file(group + "/memory.stat");
  std::string name;
  std::int64_t number = 0;
  std::int64_t sum = 0;
  while (file >> name >> number) {
    if (name == "active_file" || name == "inactive_file") sum += number;
  }
  return sum;
}

// The path of this process's group below the root, "/" where there is none.
std::string own_group(const std::string& proc) {
  std::ifstream file(proc + "/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

}  // namespace

std::optional<std::int64_t> free_memory_bytes(const std::string& proc, const std::string& cgroups) {
  std::optional<std::int64_t> least = available_bytes(proc);
  std::string group = own_group(proc);
  while (true) {
    const auto limit = read_number(cgroups + group + "/memory.max");
    const auto used = read_number(cgroups + group + "/memory.current");
    if (limit.has_value() && used.has_value()) {
      const std::int64_t kept =
          std::max<std::int64_t>(0, *used - file_cache_bytes(cgroups + group));
      const std::int64_t left = std::max<std::int64_t>(0, *limit - kept);
      least = least.has_value() ? std::min(*least, left) : left;
    }
    if (group.empty() || group == "/") return least;
    group.resize(group.rfind('/'));
  }
}

}  // namespace lmtp::agent

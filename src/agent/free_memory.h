// Memory that this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lmtp::agent {

// The least of what the machine has available and what each control group (cgroup v2) around this
// process still allows; nullopt if the system does not say. The roots are for tests.
std::optional<std::int64_t> free_memory_bytes(const std::string& proc = "/proc",
                                              const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace lmtp::agent

// What a service manager is told, by the protocol of sd_notify(3).
#pragma once

#include <chrono>
#include <string>

namespace lmtp::tools {

// Sends lines such as "READY=1\nSTATUS=..." to the socket that NOTIFY_SOCKET names; without effect
// where there is none. Any thread, as long as nothing changes the environment.
void notify(const std::string& lines);

// A line that asks for more time, from now on, to start or to stop.
std::string extend_timeout(std::chrono::milliseconds time);

}  // namespace lmtp::tools

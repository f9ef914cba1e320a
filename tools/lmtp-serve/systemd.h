// What a service manager is told, and what it hands over: the protocols of sd_notify(3),
// sd_watchdog_enabled(3) and sd_listen_fds(3).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::tools {

// Whether there is one that wants to be told. Any thread, as long as nothing changes the
// environment; so also the others.
bool has_manager();

// Sends lines such as "READY=1\nSTATUS=..." to the socket that NOTIFY_SOCKET names; without effect
// where there is none.
void notify(const std::string& lines);

// A line that asks for more time, from now on, to start or to stop.
std::string extend_timeout(std::chrono::milliseconds time);

// A line that says that configuration is being read again; READY=1 says that it has been.
std::string reloading();

// How long WATCHDOG=1 may stay away; nullopt: the manager wants none.
std::optional<std::chrono::microseconds> watchdog_interval();

// A listening stream socket that the manager has opened.
struct GivenSocket {
  int fd = -1;             // the taker's own, closed where a program is started
  bool is_unix = false;    // else TCP
  std::string address;     // a number of IPv4 or IPv6, or the path
  std::uint16_t port = 0;  // TCP
};

// Those for this process; the variables that say so are removed. An error names what the manager
// has handed over and is no such socket. REQUIRES: no other thread has been started.
Result<std::vector<GivenSocket>> take_given_sockets();

}  // namespace lmtp::tools

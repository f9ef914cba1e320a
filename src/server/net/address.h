// Where a connection comes from, as text.
#pragma once

#include <string>

#include "net/socket.h"

namespace lmtp::server {

// "192.0.2.7", "2001:db8::1"; of a Unix socket "unix"; empty where it is gone already.
std::string address_of(const Socket& socket);

}  // namespace lmtp::server

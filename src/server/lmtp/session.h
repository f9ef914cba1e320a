// One WebSocket connection.
#pragma once

#include "http/upgrade.h"

namespace lmtp::server {

// Accepts the upgrade and serves the connection until it closes. Nothing happens (the socket
// closes) where the server is stopping. Call on the stream's strand.
void start_session(WebSocketUpgrade& upgrade);

}  // namespace lmtp::server

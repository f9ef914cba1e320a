// One WebSocket connection.
#pragma once

#include <boost/beast/core/tcp_stream.hpp>
#include <memory>

#include "context.h"
#include "http.h"

namespace lmtp::server {

// Accepts the upgrade and serves the connection until it closes. Nothing happens (the socket
// closes) where the server is stopping. Call on the stream's strand.
void start_session(std::shared_ptr<ServerContext> context, boost::beast::tcp_stream stream,
                   HttpRequest request);

}  // namespace lmtp::server

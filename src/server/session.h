// One WebSocket connection.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>

#include "connection.h"
#include "context.h"
#include "http.h"

namespace lmtp::server {

// A socket on which an upgrade request has come.
struct UpgradingSocket {
  boost::beast::tcp_stream stream;
  boost::beast::flat_buffer early;  // what came behind the request
  ConnectionRegistry::Place place;
};

// Accepts the upgrade and serves the connection until it closes. Nothing happens (the socket
// closes) where the server is stopping. Call on the stream's strand.
void start_session(std::shared_ptr<ServerContext> context, UpgradingSocket socket,
                   HttpRequest request);

}  // namespace lmtp::server
